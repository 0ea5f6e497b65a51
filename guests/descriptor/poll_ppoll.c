/* ppoll: a timespec timeout which it leaves alone, a mask, no descriptors, bad timeouts.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

int main(void)
{
    int p[2];
    sigset_t mask;
    sigemptyset(&mask);
    CHECK(pipe(p) == 0);
    struct pollfd fds = {.fd = p[0], .events = POLLIN};
    struct timespec ts = {0, 25 * NS_PER_MS}, zero = {0, 0}, bad = {0, 2 * NS_PER_S};
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(ppoll(&fds, 1, &ts, &mask) == 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 25 * NS_PER_MS);
    CHECK(ts.tv_sec == 0 && ts.tv_nsec == 25 * NS_PER_MS);
    CHECK(ppoll(&fds, 1, &zero, NULL) == 0);
    CHECK_ERRNO(ppoll(&fds, 1, &bad, NULL), EINVAL);
    write_all(p[1], "x", 1);
    CHECK(ppoll(&fds, 1, NULL, &mask) == 1 && fds.revents == POLLIN);
    say("ppoll timed out, then ready");
    return 0;
}
