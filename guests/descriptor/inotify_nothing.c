/* inotify without a watch: the descriptor's properties, and that no event arrives.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

static void nothing(int signal)
{
    (void)signal;
}

int main(void)
{
    char bytes[256];
    int n = 7, fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE)) == O_NONBLOCK);
    CHECK_ERRNO(inotify_init1(1), EINVAL);
    CHECK_ERRNO(read(fd, bytes, sizeof bytes), EAGAIN);
    CHECK_ERRNO(write(fd, "x", 1), EBADF);
    CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    ssize_t length = readlink("/proc/self/fd/0", bytes, sizeof bytes);
    CHECK(length > 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    length = readlink(path, bytes, sizeof bytes);
    CHECK(length == 18 && memcmp(bytes, "anon_inode:inotify", 18) == 0);
    say("a descriptor");

    int file = open("/dev/null", O_RDONLY), pair[2];
    CHECK(pipe(pair) == 0);
    CHECK_ERRNO(inotify_rm_watch(fd, 1), EINVAL);
    CHECK_ERRNO(inotify_rm_watch(file, 1), EINVAL);
    CHECK_ERRNO(inotify_rm_watch(pair[0], 1), EINVAL);
    CHECK_ERRNO(inotify_rm_watch(999, 1), EBADF);
    CHECK_ERRNO(inotify_add_watch(fd, "/", 0), EINVAL);
    CHECK_ERRNO(inotify_add_watch(pair[0], "/", IN_CREATE), EINVAL);
    CHECK_ERRNO(inotify_add_watch(999, "/", IN_CREATE), EBADF);
    say("no watch");

    struct pollfd look = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&look, 1, 20) == 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, 20) == 0);
    int copy = dup(fd);
    CHECK(close(fd) == 0 && close(set) == 0);
    CHECK_ERRNO(read(copy, bytes, sizeof bytes), EAGAIN);
    CHECK(close(copy) == 0);

    int blocks = inotify_init();
    CHECK(blocks >= 0 && fcntl(blocks, F_GETFD) == 0);
    struct sigaction action = {.sa_handler = nothing};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    CHECK_ERRNO(read(blocks, bytes, sizeof bytes), EINTR);
    say("nothing comes");
    return 0;
}
