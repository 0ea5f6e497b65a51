/* select and pselect: the three sets, counts, timeouts, EBADF, EINVAL, and sleeping with no sets.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/select.h>

int main(void)
{
    int p[2], s[2];
    tcp_pair(s);
    CHECK(pipe(p) == 0);
    int top = (s[0] > p[1] ? s[0] : p[1]) + 1;
    if (s[1] >= top)
        top = s[1] + 1;
    fd_set in, out, except;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    FD_SET(p[0], &in);
    FD_SET(s[1], &in);
    FD_SET(p[1], &out);
    FD_SET(s[0], &out);
    FD_SET(s[0], &except);
    struct timeval zero = {0, 0};
    CHECK(select(top, &in, &out, &except, &zero) == 2);
    CHECK(!FD_ISSET(p[0], &in) && !FD_ISSET(s[1], &in) && FD_ISSET(p[1], &out) && FD_ISSET(s[0], &out));
    CHECK(!FD_ISSET(s[0], &except));
    say("writable: 2, readable: 0");

    write_all(s[0], "x", 1);
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    FD_SET(s[1], &in);
    CHECK(select(top, &in, NULL, NULL, NULL) == 1 && FD_ISSET(s[1], &in));
    write_all(p[1], "x", 1);
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    FD_SET(s[1], &in);
    CHECK(select(top, &in, NULL, NULL, NULL) == 2);
    say("readable: 2");

    struct timeval tv = {0, 30000};
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(select(0, NULL, NULL, NULL, &tv) == 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30 * NS_PER_MS);
    CHECK(tv.tv_sec == 0 && tv.tv_usec == 0); /* Linux writes back what is left. */
    struct timespec ts = {0, 30 * NS_PER_MS};
    start = now_ns(CLOCK_MONOTONIC);
    CHECK(pselect(0, NULL, NULL, NULL, &ts, NULL) == 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30 * NS_PER_MS && ts.tv_nsec == 30 * NS_PER_MS);
    say("both sleep");

    sigset_t mask;
    sigemptyset(&mask);
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    CHECK(pselect(top, &in, NULL, NULL, NULL, &mask) == 1);
    FD_ZERO(&in);
    int closed = dup(p[0]);
    CHECK(close(closed) == 0);
    FD_SET(closed, &in);
    CHECK_ERRNO(select(closed + 1, &in, NULL, NULL, &zero), EBADF);
    CHECK_ERRNO(select(-1, NULL, NULL, NULL, &zero), EINVAL);
    tv.tv_sec = -1;
    CHECK_ERRNO(select(0, NULL, NULL, NULL, &tv), EINVAL);
    say("errors: EBADF EINVAL");
    return 0;
}
