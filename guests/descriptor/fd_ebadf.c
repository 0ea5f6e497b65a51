/* Calls on closed and never opened descriptors give EBADF.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

int main(void)
{
    int fds[3];
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(close(fds[0]) == 0);
    fds[1] = -1;
    fds[2] = 9999;
    for (int i = 0; i < 3; i++) {
        int fd = fds[i], n;
        char byte = 0;
        struct iovec iov = {&byte, 1};
        struct stat st;
        struct itimerspec spec = {0};
        CHECK_ERRNO(read(fd, &byte, 1), EBADF);
        CHECK_ERRNO(write(fd, &byte, 1), EBADF);
        CHECK_ERRNO(readv(fd, &iov, 1), EBADF);
        CHECK_ERRNO(writev(fd, &iov, 1), EBADF);
        CHECK_ERRNO(recv(fd, &byte, 1, 0), EBADF);
        CHECK_ERRNO(send(fd, &byte, 1, MSG_NOSIGNAL), EBADF);
        CHECK_ERRNO(close(fd), EBADF);
        CHECK_ERRNO(dup(fd), EBADF);
        CHECK_ERRNO(fcntl(fd, F_GETFL), EBADF);
        CHECK_ERRNO(ioctl(fd, FIONREAD, &n), EBADF);
        CHECK_ERRNO(fstat(fd, &st), EBADF);
        CHECK_ERRNO(lseek(fd, 0, SEEK_CUR), EBADF);
        CHECK_ERRNO(timerfd_settime(fd, 0, &spec, NULL), EBADF);
        CHECK_ERRNO(listen(fd, 1), EBADF);
        say("descriptor %d: EBADF everywhere", i);
    }
    return 0;
}
