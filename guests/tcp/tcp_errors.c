/* Socket calls on the wrong kind of descriptor, and socket() with arguments that do not exist.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    struct sockaddr_storage address;
    int port, fds[2];
    int listener = tcp_listen(AF_INET, &port);
    socklen_t length = loopback(AF_INET, port, &address);
    int fd = tcp_connect(AF_INET, port);
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, length), EISCONN);
    CHECK_ERRNO(connect(-1, (struct sockaddr *)&address, length), EBADF);
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, 1), EINVAL);
    CHECK_ERRNO(accept(fd, NULL, NULL), EINVAL);
    CHECK_ERRNO(accept(-1, NULL, NULL), EBADF);
    CHECK(pipe(fds) == 0);
    CHECK_ERRNO(accept(fds[0], NULL, NULL), ENOTSOCK);
    CHECK_ERRNO(connect(fds[0], (struct sockaddr *)&address, length), ENOTSOCK);
    CHECK_ERRNO(listen(fds[0], 1), ENOTSOCK);
    CHECK_ERRNO(bind(fds[0], (struct sockaddr *)&address, length), ENOTSOCK);
    CHECK_ERRNO(send(fds[1], "x", 1, 0), ENOTSOCK);
    CHECK_ERRNO(shutdown(fds[1], SHUT_WR), ENOTSOCK);
    say("EISCONN EBADF EINVAL ENOTSOCK");
    char byte;
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(read(listener, &byte, 1), ENOTCONN);
    CHECK_ERRNO(write(listener, &byte, 1), EPIPE);
    int fresh = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(fresh >= 0);
    CHECK_ERRNO(read(fresh, &byte, 1), ENOTCONN);
    CHECK_ERRNO(write(fresh, &byte, 1), EPIPE);
    CHECK_ERRNO(lseek(fresh, 0, SEEK_CUR), ESPIPE);
    CHECK_ERRNO(pread(fresh, &byte, 1, 0), ESPIPE);
    say("ENOTCONN EPIPE ESPIPE");
    CHECK_ERRNO(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    CHECK_ERRNO(socket(12345, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERRNO(socket(AF_INET, 9, 0), ESOCKTNOSUPPORT);
    say("socket: EPROTONOSUPPORT EAFNOSUPPORT ESOCKTNOSUPPORT");
    return 0;
}
