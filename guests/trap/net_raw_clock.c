/* clock_gettime, gettimeofday, time and nanosleep by inline system calls.
 *
 * expect: same
 * or fatal: clock_gettime | gettimeofday | time
 */
#include "raw.h"
#include <sys/time.h>

int main(void)
{
    struct timespec ts, pause = to_timespec(10 * NS_PER_MS);
    struct timeval tv;
    say("before");
    fflush(stdout);
    CHECK(raw3(SYS_clock_gettime, CLOCK_REALTIME, (long)&ts, 0) == 0);
    CHECK(raw3(SYS_gettimeofday, (long)&tv, 0, 0) == 0);
    long seconds = raw3(SYS_time, 0, 0, 0);
    note("%lld.%09ld %lld.%06ld %ld", (long long)ts.tv_sec, ts.tv_nsec, (long long)tv.tv_sec, (long)tv.tv_usec, seconds);
    CHECK(tv.tv_sec >= ts.tv_sec && seconds >= ts.tv_sec - 1);
    CHECK(raw3(SYS_nanosleep, (long)&pause, 0, 0) == 0);
    say("clocks by inline system calls");
    return 0;
}
