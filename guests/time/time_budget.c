/* Work that is bounded by the clock ends without inputs, and is not many times longer than natively.
 *
 * expect: same
 */
#include "guest.h"

static long long now_us(void)
{
    struct timespec at;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

/* A portion of work: some 20 us at least. */
static void work(void)
{
    static volatile unsigned long sum;
    for (int i = 0; i < 80000; i++)
        sum += i;
}

static long work_for(long long us)
{
    long rounds = 0;
    for (long long until = now_us() + us; now_us() < until; rounds++)
        work();
    CHECK(rounds > 0);
    return rounds;
}

int main(void)
{
    long rounds = work_for(1000);
    dprintf(2, "%ld rounds\n", rounds);
    CHECK(rounds < 250);
    note("worked for a millisecond");
    for (int i = 0; i < 5; i++)
        CHECK(work_for(1000) < 250);
    note("and for five more");
    return 0;
}
