/* Resets: closing with unread data, and SO_LINGER 0. The peer reads ECONNRESET once, then end of file; writes EPIPE.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

static void await_reset(int fd, const char *how)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, -1) == 1);
    CHECK((p.revents & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    char byte;
    CHECK_ERRNO(read(fd, &byte, 1), ECONNRESET);
    CHECK(read(fd, &byte, 1) == 0);
    CHECK_ERRNO(write(fd, "x", 1), EPIPE);
    say("%s: ECONNRESET, then end of file, EPIPE", how);
    CHECK(close(fd) == 0);
}

int main(void)
{
    int p[2];
    signal(SIGPIPE, SIG_IGN);
    struct pollfd ready = {.events = POLLIN};

    tcp_pair(p);
    write_all(p[0], "never read", 10);
    ready.fd = p[1];
    CHECK(poll(&ready, 1, -1) == 1);
    CHECK(close(p[1]) == 0);
    await_reset(p[0], "unread data");

    tcp_pair(p);
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    CHECK(setsockopt(p[1], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(close(p[1]) == 0);
    await_reset(p[0], "linger 0");

    tcp_pair(p);
    CHECK(setsockopt(p[1], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(close(p[1]) == 0);
    ready.fd = p[0];
    CHECK(poll(&ready, 1, -1) == 1);
    int error = 0;
    socklen_t length = sizeof error;
    CHECK(getsockopt(p[0], SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNRESET);
    char byte;
    CHECK(read(p[0], &byte, 1) == 0);
    say("SO_ERROR takes the error away");
    return 0;
}
