/* fcntl on virtual descriptors: F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, errors; fcntl64 by name.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static void exercise(const char *what, int fd)
{
    CHECK(fd >= 0);
    int high = fcntl(fd, F_DUPFD, 100);
    CHECK(high == 100 && fcntl(high, F_GETFD) == 0);
    int next = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    CHECK(next == 101 && fcntl(next, F_GETFD) == FD_CLOEXEC);
    CHECK(fcntl(next, F_SETFD, 0) == 0 && fcntl(next, F_GETFD) == 0);
    CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    int flags = fcntl(fd, F_GETFL);
    CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    CHECK(fcntl(high, F_GETFL) == (flags | O_NONBLOCK));
    CHECK(fcntl(high, F_SETFL, flags) == 0);
    CHECK(fcntl(fd, F_GETFL) == flags);
    CHECK_ERRNO(fcntl(fd, F_DUPFD, -1), EINVAL);
    CHECK(close(high) == 0 && close(next) == 0 && close(fd) == 0);
    CHECK_ERRNO(fcntl(fd, F_GETFD), EBADF);
    CHECK_ERRNO(fcntl(fd, F_GETFL), EBADF);
    CHECK_ERRNO(fcntl(fd, F_DUPFD, 0), EBADF);
    say("%s: ok", what);
}

int main(void)
{
    int p[2];
    exercise("socket", socket(AF_INET, SOCK_STREAM, 0));
    CHECK(pipe(p) == 0);
    exercise("pipe read", p[0]);
    exercise("pipe write", p[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
    exercise("socketpair", p[0]);
    exercise("eventfd", eventfd(0, 0));
    exercise("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
    exercise("epoll", epoll_create1(0));
    exercise("file", open("/proc/self/exe", O_RDONLY));
    return 0;
}
