/* connect to a port without a listener: ECONNREFUSED, blocking, non-blocking and again on the same socket.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

static int closed_port(void)
{
    int port;
    int fd = tcp_listen(AF_INET, &port);
    CHECK(close(fd) == 0);
    return port;
}

int main(void)
{
    struct sockaddr_storage address;
    socklen_t length = loopback(AF_INET, closed_port(), &address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, length), ECONNREFUSED);
    say("blocking: refused");
    CHECK(close(fd) == 0);

    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int rc = connect(fd, (struct sockaddr *)&address, length);
    CHECK(rc == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
    if (errno == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        CHECK(poll(&p, 1, -1) == 1);
        CHECK(p.revents & POLLERR);
        int error = 0;
        length = sizeof error;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
        CHECK(error == ECONNREFUSED);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
        CHECK(error == 0);
    }
    say("non-blocking: refused, SO_ERROR read once");
    CHECK(close(fd) == 0);
    return 0;
}
