/* bind: port 0, EADDRINUSE, EADDRNOTAVAIL, EINVAL for a second bind, a port that is free again after close.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    struct sockaddr_storage address;
    int port, second, one = 1;
    int listener = tcp_listen(AF_INET, &port);
    int other = tcp_listen(AF_INET, &second);
    CHECK(port != second);
    note("ports %d %d", port, second);

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = loopback(AF_INET, port, &address);
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, length), EADDRINUSE);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, length), EADDRINUSE);
    say("in use: EADDRINUSE, with SO_REUSEADDR too");

    ((struct sockaddr_in *)&address)->sin_addr.s_addr = inet_addr("192.0.2.1");
    ((struct sockaddr_in *)&address)->sin_port = 0;
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, length), EADDRNOTAVAIL);
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, 3), EINVAL);
    CHECK_ERRNO(bind(-1, (struct sockaddr *)&address, length), EBADF);
    loopback(AF_INET, 0, &address);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(local_port(fd) != 0);
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, length), EINVAL);
    say("errors: EADDRNOTAVAIL EINVAL EBADF; port 0 chose one");

    CHECK(close(listener) == 0);
    int again = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    loopback(AF_INET, port, &address);
    CHECK(bind(again, (struct sockaddr *)&address, length) == 0);
    CHECK(listen(again, 1) == 0);
    CHECK(local_port(again) == port);
    CHECK(close(tcp_connect(AF_INET, port)) == 0);
    say("free again after close");
    CHECK(close(other) == 0);
    return 0;
}
