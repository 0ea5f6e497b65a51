/* SIGPIPE: raised by writes to a closed pipe or socket, at the writing thread; not with MSG_NOSIGNAL, not when ignored or blocked.
 *
 * expect: same
 */
#include "guest.h"

static volatile int seen;
static pthread_t writer;

static void handler(int number)
{
    CHECK(number == SIGPIPE && pthread_equal(pthread_self(), writer));
    seen++;
}

static void *body(void *arg)
{
    int ends[2], pair[2];
    sigset_t only, pending;
    siginfo_t info;
    (void)arg;
    writer = pthread_self();
    CHECK(pipe(ends) == 0);
    CHECK(close(ends[0]) == 0);
    CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
    CHECK(seen == 1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(close(pair[0]) == 0);
    CHECK_ERRNO(send(pair[1], "x", 1, 0), EPIPE);
    CHECK(seen == 2);
    CHECK_ERRNO(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(seen == 2);
    say("handled %d", seen);

    sigemptyset(&only);
    sigaddset(&only, SIGPIPE);
    CHECK(pthread_sigmask(SIG_BLOCK, &only, NULL) == 0);
    CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE));
    struct timespec none = {0, 0};
    CHECK(sigtimedwait(&only, &info, &none) == SIGPIPE);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &only, NULL) == 0);
    CHECK(seen == 2);

    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
    say("blocked and ignored");
    return NULL;
}

int main(void)
{
    signal(SIGPIPE, handler);
    join(spawn(body, NULL));
    return 0;
}
