/* Writing to a connection that is gone: EPIPE, SIGPIPE unless MSG_NOSIGNAL or ignored; MSG_DONTWAIT, MSG_MORE.
 *
 * expect: same
 */
#include "guest.h"

static volatile sig_atomic_t signals;

static void on_pipe(int signal)
{
    (void)signal;
    signals++;
}

int main(void)
{
    int p[2];
    struct sigaction action = {.sa_handler = on_pipe};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
    tcp_pair(p);
    CHECK(send(p[0], "one ", 4, MSG_MORE) == 4);
    CHECK(send(p[0], "two", 3, MSG_DONTWAIT | MSG_NOSIGNAL) == 3);
    expect_text(p[1], "one two");
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    CHECK_ERRNO(send(p[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    say("MSG_NOSIGNAL: EPIPE, signals %d", (int)signals);
    CHECK_ERRNO(send(p[0], "x", 1, 0), EPIPE);
    say("send: EPIPE, signals %d", (int)signals);
    CHECK_ERRNO(write(p[0], "x", 1), EPIPE);
    say("write: EPIPE, signals %d", (int)signals);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(write(p[0], "x", 1), EPIPE);
    say("ignored: EPIPE, signals %d", (int)signals);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(send(fresh, "x", 1, MSG_NOSIGNAL), EPIPE);
    char byte;
    CHECK_ERRNO(recv(fresh, &byte, 1, 0), ENOTCONN);
    CHECK_ERRNO(send(-1, "x", 1, 0), EBADF);
    CHECK(send(p[1], "", 0, 0) == 0);
    return 0;
}
