/* A non-blocking connect that succeeds: EINPROGRESS (or 0), POLLOUT, SO_ERROR 0, then EISCONN.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

int main(void)
{
    int port;
    int listener = tcp_listen(AF_INET, &port);
    struct sockaddr_storage address;
    socklen_t length = loopback(AF_INET, port, &address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int rc = connect(fd, (struct sockaddr *)&address, length);
    CHECK(rc == 0 || errno == EINPROGRESS);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLOUT);
    int error = -1;
    socklen_t size = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0);
    /* The first connect after the handshake reports its success, the next one EISCONN. */
    rc = connect(fd, (struct sockaddr *)&address, length);
    CHECK(rc == 0 || errno == EISCONN);
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, length), EISCONN);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0);
    char byte;
    CHECK_ERRNO(read(fd, &byte, 1), EAGAIN);
    write_all(server, "!", 1);
    p.events = POLLIN;
    CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLIN);
    CHECK(read(fd, &byte, 1) == 1 && byte == '!');
    say("connected without blocking");
    return 0;
}
