/* socketpair(AF_UNIX, SOCK_STREAM): both directions, shutdown, close, flags, names, unread data.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/un.h>

int main(void)
{
    int p[2];
    char buffer[16] = {0};
    signal(SIGPIPE, SIG_IGN);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
    write_all(p[0], "to1", 3);
    write_all(p[1], "to0", 3);
    expect_text(p[1], "to1");
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_PEEK) == 3);
    expect_text(p[0], "to0");
    CHECK_ERRNO(recv(p[0], buffer, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    CHECK(read(p[1], buffer, 1) == 0);
    CHECK_ERRNO(write(p[0], "x", 1), EPIPE);
    write_all(p[1], "still", 5);
    expect_text(p[0], "still");
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    CHECK(getsockname(p[0], (struct sockaddr *)&name, &length) == 0);
    CHECK(name.sun_family == AF_UNIX);
    CHECK(close(p[1]) == 0);
    struct pollfd hup = {.fd = p[0], .events = POLLIN};
    CHECK(poll(&hup, 1, -1) == 1 && (hup.revents & POLLHUP));
    CHECK(read(p[0], buffer, 1) == 0);
    CHECK(close(p[0]) == 0);
    say("both ways, half-close, end of file");

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p) == 0);
    CHECK((fcntl(p[0], F_GETFL) & O_NONBLOCK) && fcntl(p[1], F_GETFD) == FD_CLOEXEC);
    CHECK_ERRNO(read(p[0], buffer, 1), EAGAIN);
    CHECK_ERRNO(socketpair(AF_INET, SOCK_STREAM, 0, p), EOPNOTSUPP);
    say("flags; AF_INET refused");
    return 0;
}
