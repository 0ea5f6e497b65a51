/* signalfd: its records, readiness for poll and epoll, blocking reads, another set.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

static void *sender(void *arg)
{
    sleep_ms(10);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    return arg;
}

int main(void)
{
    sigset_t set;
    struct signalfd_siginfo infos[4];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 5};
    union sigval value = {.sival_int = 31};

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK_ERRNO(read(fd, infos, sizeof infos), EAGAIN);
    CHECK_ERRNO(read(fd, infos, 100), EINVAL);
    int epoll = epoll_create1(0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);
    value.sival_int++;
    CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
    CHECK(event.data.u32 == 5);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, 0) == 1);
    ssize_t n = read(fd, infos, sizeof infos);
    say("read %zd", n / (ssize_t)sizeof *infos);
    for (int i = 0; i < n / (ssize_t)sizeof *infos; i++)
        say("%d code %d pid %d value %d", infos[i].ssi_signo == SIGUSR1 ? 0 : (int)infos[i].ssi_signo - SIGRTMIN + 1,
            infos[i].ssi_code, infos[i].ssi_pid == (uint32_t)getpid(), infos[i].ssi_int);
    CHECK(poll(&p, 1, 0) == 0);

    pthread_t t = spawn(sender, NULL);
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
    CHECK(read(fd, infos, sizeof *infos) == sizeof *infos);
    CHECK(infos[0].ssi_signo == SIGUSR2);
    join(t);

    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    t = spawn(sender, NULL);
    CHECK(read(fd, infos, sizeof infos) == sizeof *infos);
    CHECK(infos[0].ssi_signo == SIGUSR2);
    join(t);

    sigdelset(&set, SIGUSR2);
    CHECK(signalfd(fd, &set, 0) == fd);
    CHECK(raise(SIGUSR2) == 0);
    CHECK(poll(&p, 1, 0) == 0);
    CHECK_ERRNO(signalfd(0, &set, 0), EINVAL);
    CHECK_ERRNO(signalfd(-1, &set, 1), EINVAL);
    say("done");
    return 0;
}
