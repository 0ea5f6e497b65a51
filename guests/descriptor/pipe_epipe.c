/* Writing to a pipe without a reader: SIGPIPE and EPIPE; a blocked writer is told too.
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

static void *blocked_writer(void *arg)
{
    static char big[1 << 18];
    ssize_t n = write(*(int *)arg, big, sizeof big);
    /* It wrote as much as fitted, then the reader went away. */
    CHECK((n > 0 && n < (ssize_t)sizeof big) || (n == -1 && errno == EPIPE));
    CHECK_ERRNO(write(*(int *)arg, big, 1), EPIPE);
    return NULL;
}

int main(void)
{
    int p[2];
    signal(SIGPIPE, on_pipe);
    CHECK(pipe(p) == 0);
    CHECK(close(p[0]) == 0);
    CHECK_ERRNO(write(p[1], "x", 1), EPIPE);
    say("EPIPE, signals %d", (int)signals);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(write(p[1], "x", 1), EPIPE);
    CHECK(close(p[1]) == 0);
    say("ignored: EPIPE, signals %d", (int)signals);

    CHECK(pipe(p) == 0);
    pthread_t thread = spawn(blocked_writer, &p[1]);
    sleep_ms(20);
    CHECK(close(p[0]) == 0);
    join(thread);
    say("a blocked writer gets out");
    return 0;
}
