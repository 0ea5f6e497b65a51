/* Connections to other hosts that fail, blocking: refused, timed out, to many hosts at once; the socket can be used again.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

int main(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(outside_start(fd, 9), ECONNREFUSED);
    CHECK_ERRNO(outside_start(fd, OUTSIDE_SILENT), ETIMEDOUT);
    char byte;
    CHECK_ERRNO(read(fd, &byte, 1), ENOTCONN);
    CHECK(outside_start(fd, OUTSIDE_ECHO) == 0);
    write_all(fd, "again", 5);
    expect_text(fd, "again");
    CHECK(close(fd) == 0);

    struct sockaddr_storage address;
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    socklen_t length = loopback(AF_INET6, 4, &address);
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, length), ECONNREFUSED);
    ((struct sockaddr_in6 *)&address)->sin6_addr.s6_addr[0] = 0xff;
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, length), ENETUNREACH);
    CHECK(close(fd) == 0);

    /* A bound port is kept; the address that a server sees of itself is the loopback one. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    length = loopback(AF_INET, 0, &address);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    int port = local_port(fd);
    CHECK(outside_start(fd, OUTSIDE_GREETER) == 0);
    CHECK(local_port(fd) == port);
    expect_text(fd, OUTSIDE_GREETING);
    CHECK(close(fd) == 0);
    say("failed as they should");
    return 0;
}
