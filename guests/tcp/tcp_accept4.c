/* accept and accept4: flags are the caller's, not the listener's; EAGAIN without a waiting connection; EINVAL for unknown flags.
 *
 * expect: same
 */
#include "guest.h"

static void describe(const char *what, int fd)
{
    CHECK(fd >= 0);
    say("%s: nonblock %d cloexec %d", what, (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(close(fd) == 0);
}

int main(void)
{
    int port, clients[4];
    int listener = tcp_listen(AF_INET, &port);
    set_nonblocking(listener);
    CHECK_ERRNO(accept(listener, NULL, NULL), EAGAIN);
    CHECK_ERRNO(accept4(listener, NULL, NULL, SOCK_CLOEXEC), EAGAIN);
    for (int i = 0; i < 4; i++)
        clients[i] = tcp_connect(AF_INET, port);
    CHECK_ERRNO(accept4(listener, NULL, NULL, 0x4), EINVAL);
    describe("accept", accept(listener, NULL, NULL));
    describe("accept4 0", accept4(listener, NULL, NULL, 0));
    describe("accept4 NONBLOCK", accept4(listener, NULL, NULL, SOCK_NONBLOCK));
    describe("accept4 both", accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    CHECK_ERRNO(accept(listener, NULL, NULL), EAGAIN);
    for (int i = 0; i < 4; i++)
        CHECK(close(clients[i]) == 0);
    return 0;
}
