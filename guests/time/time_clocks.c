/* clock_gettime of every clock, gettimeofday, time, timespec_get, clock, times: plausible, never backwards, in step.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/timeb.h>

int main(void)
{
    static const struct {
        clockid_t id;
        const char *name;
        int wall;
    } clocks[] = {
        {CLOCK_REALTIME, "REALTIME", 1},
        {CLOCK_REALTIME_COARSE, "REALTIME_COARSE", 1},
        {CLOCK_TAI, "TAI", 1},
        {CLOCK_MONOTONIC, "MONOTONIC", 0},
        {CLOCK_MONOTONIC_RAW, "MONOTONIC_RAW", 0},
        {CLOCK_MONOTONIC_COARSE, "MONOTONIC_COARSE", 0},
        {CLOCK_BOOTTIME, "BOOTTIME", 0},
        {CLOCK_PROCESS_CPUTIME_ID, "PROCESS_CPUTIME", 0},
        {CLOCK_THREAD_CPUTIME_ID, "THREAD_CPUTIME", 0},
    };
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        int64_t last = 0, first = now_ns(clocks[i].id);
        for (int k = 0; k < 1000; k++) {
            int64_t now = now_ns(clocks[i].id);
            CHECK(now >= last);
            last = now;
        }
        if (clocks[i].wall)
            CHECK(first / NS_PER_S > 1700000000 && first / NS_PER_S < 4000000000LL);
        struct timespec resolution;
        CHECK(clock_getres(clocks[i].id, &resolution) == 0);
        CHECK(resolution.tv_sec == 0 && resolution.tv_nsec >= 1 && resolution.tv_nsec <= 10 * NS_PER_MS);
        CHECK(clock_getres(clocks[i].id, NULL) == 0);
        note("%s %lld to %lld, resolution %ld", clocks[i].name, (long long)first, (long long)last, resolution.tv_nsec);
        say("%s: never backwards", clocks[i].name);
    }

    int64_t before = now_ns(CLOCK_REALTIME);
    struct timeval tv;
    struct timespec ts;
    CHECK(gettimeofday(&tv, NULL) == 0);
    CHECK(timespec_get(&ts, TIME_UTC) == TIME_UTC);
    time_t second, direct = time(&second);
    int64_t after = now_ns(CLOCK_REALTIME);
    CHECK(direct == second);
    CHECK((int64_t)tv.tv_sec * NS_PER_S + tv.tv_usec * 1000 >= before - 1000);
    CHECK((int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec >= before && (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec <= after);
    /* time() reads the coarse clock: up to a tick behind. */
    CHECK(direct >= (before - 20 * NS_PER_MS) / NS_PER_S && direct <= after / NS_PER_S);
    say("gettimeofday, timespec_get and time agree");

    struct tms tms;
    struct rusage usage;
    note("times %ld, clock %ld", (long)times(&tms), (long)clock());
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    note("gettimeofday %ld.%06ld", (long)tv.tv_sec, (long)tv.tv_usec);
    CHECK_ERRNO(clock_gettime(12345, &ts), EINVAL);
    CHECK_ERRNO(clock_getres(12345, &ts), EINVAL);
    clockid_t mine;
    CHECK(pthread_getcpuclockid(pthread_self(), &mine) == 0);
    CHECK(clock_gettime(mine, &ts) == 0);
    say("errors: EINVAL");
    return 0;
}
