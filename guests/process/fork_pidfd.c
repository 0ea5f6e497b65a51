/* pidfds: readable at the end of a process; signals are sent and children awaited by them.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int pidfd_of(pid_t pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

static int send_by(int pidfd, int signo)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0);
}

static int ready(int pidfd, int ms)
{
    struct pollfd ask = {.fd = pidfd, .events = POLLIN};
    int rc = poll(&ask, 1, ms);
    CHECK(rc >= 0);
    return ask.revents & POLLIN;
}

int main(void)
{
    siginfo_t info;
    char byte;
    int gate[2], status;
    CHECK(pipe(gate) == 0);
    CHECK_ERRNO(pidfd_of(0, 0), EINVAL);
    CHECK_ERRNO(pidfd_of(getpid(), 1), EINVAL);
    CHECK_ERRNO(pidfd_of(999999, 0), ESRCH);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(gate[1]) == 0 && read(gate[0], &byte, 1) == 0);
        _exit(5);
    }
    int pidfd = pidfd_of(child, 0), hasty = pidfd_of(child, O_NONBLOCK);
    CHECK(pidfd >= 0 && hasty >= 0 && fcntl(pidfd, F_GETFD) == FD_CLOEXEC);
    CHECK_ERRNO(read(pidfd, &byte, 1), EINVAL);
    CHECK_ERRNO(send_by(gate[0], 0), EBADF);
    CHECK(send_by(pidfd, 0) == 0 && !ready(pidfd, 0));
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)hasty, &info, WEXITED), EAGAIN);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pidfd, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
    CHECK(close(gate[1]) == 0);
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && (event.events & EPOLLIN) && ready(hasty, -1));
    CHECK(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_pid == child && info.si_code == CLD_EXITED && info.si_status == 5);
    CHECK(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) == 0);
    CHECK(ready(pidfd, 0));
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED), ECHILD);
    CHECK_ERRNO(send_by(pidfd, 0), ESRCH);
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)gate[0], &info, WEXITED), EBADF);
    CHECK(close(pidfd) == 0 && close(hasty) == 0);
    say("waited for");

    child = fork();
    if (child == 0)
        for (;;)
            pause();
    pidfd = pidfd_of(child, 0);
    int copy = dup(pidfd);
    CHECK(copy >= 0 && close(pidfd) == 0);
    CHECK(send_by(copy, SIGTERM) == 0 && ready(copy, -1));
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);
    CHECK(close(copy) == 0);
    /* One's own. */
    pidfd = pidfd_of(getpid(), 0);
    CHECK(pidfd >= 0 && !ready(pidfd, 0));
    CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR && send_by(pidfd, SIGUSR1) == 0);
    say("signalled");
    return 0;
}
