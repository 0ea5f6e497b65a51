/* ioctl FIONREAD counts waiting bytes; FIONBIO switches blocking; SIOCOUTQ answers.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/ioctl.h>

static int waiting(int fd)
{
    int n = -1;
    CHECK(ioctl(fd, FIONREAD, &n) == 0);
    return n;
}

int main(void)
{
    int p[2], on = 1, off = 0;
    char buffer[8];
    tcp_pair(p);
    say("empty: %d", waiting(p[1]));
    write_all(p[0], "12345678", 8);
    struct pollfd ready = {.fd = p[1], .events = POLLIN};
    CHECK(poll(&ready, 1, -1) == 1);
    say("after 8: %d", waiting(p[1]));
    read_exact(p[1], buffer, 3);
    say("after reading 3: %d", waiting(p[1]));
    read_exact(p[1], buffer, 5);
    CHECK(ioctl(p[1], FIONBIO, &on) == 0);
    CHECK(fcntl(p[1], F_GETFL) & O_NONBLOCK);
    CHECK_ERRNO(read(p[1], buffer, 1), EAGAIN);
    CHECK(ioctl(p[1], FIONBIO, &off) == 0);
    CHECK(!(fcntl(p[1], F_GETFL) & O_NONBLOCK));
    CHECK_ERRNO(ioctl(-1, FIONREAD, &on), EBADF);
    CHECK(ioctl(p[1], FIOCLEX) == 0 && fcntl(p[1], F_GETFD) == FD_CLOEXEC);
    CHECK(ioctl(p[1], FIONCLEX) == 0 && fcntl(p[1], F_GETFD) == 0);
    say("FIONBIO, FIOCLEX and FIONCLEX switch the flags");
    return 0;
}
