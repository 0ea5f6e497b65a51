/* sleep, usleep, nanosleep, clock_nanosleep (relative and absolute), thrd_sleep: at least as long; errors.
 *
 * expect: same
 */
#include "guest.h"
#include <threads.h>

static int64_t start;

static void begin(void)
{
    start = now_ns(CLOCK_MONOTONIC);
}

static void end(const char *what, int64_t least_ns)
{
    int64_t took = now_ns(CLOCK_MONOTONIC) - start;
    note("%s took %lld ns", what, (long long)took);
    CHECK(took >= least_ns);
    say("%s: at least %lld ns", what, (long long)least_ns);
}

int main(void)
{
    struct timespec ts = {0, 20 * NS_PER_MS}, rest = {7, 7}, bad = {0, NS_PER_S};
    begin();
    CHECK(sleep(1) == 0);
    end("sleep", NS_PER_S);
    begin();
    CHECK(usleep(20000) == 0);
    end("usleep", 20 * NS_PER_MS);
    begin();
    CHECK(nanosleep(&ts, &rest) == 0);
    end("nanosleep", 20 * NS_PER_MS);
    CHECK(rest.tv_sec == 7 && rest.tv_nsec == 7);
    begin();
    CHECK(clock_nanosleep(CLOCK_REALTIME, 0, &ts, NULL) == 0);
    end("clock_nanosleep realtime", 19 * NS_PER_MS);
    begin();
    struct timespec until = to_timespec(start + 20 * NS_PER_MS);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
    end("clock_nanosleep absolute", 20 * NS_PER_MS);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
    until = to_timespec(now_ns(CLOCK_REALTIME) + 20 * NS_PER_MS);
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0);
    CHECK(now_ns(CLOCK_REALTIME) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    begin();
    CHECK(thrd_sleep(&ts, NULL) == 0);
    end("thrd_sleep", 19 * NS_PER_MS);
    CHECK_ERRNO(nanosleep(&bad, NULL), EINVAL);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &bad, NULL) == EINVAL);
    CHECK(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &ts, NULL) == EINVAL);
    CHECK(sleep(0) == 0 && usleep(0) == 0);
    say("errors: EINVAL");
    return 0;
}
