/* Work that is bounded by the clock ends, though nothing comes in meanwhile. */
#include "guest.h"

static long long now_us(void)
{
    struct timespec at;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

int main(void)
{
    volatile unsigned long sum = 0;
    long rounds = 0;
    for (long long until = now_us() + 1000; now_us() < until; rounds++)
        for (int i = 0; i < 5000; i++)
            sum += i;
    CHECK(rounds > 0 && rounds < 2000);
    note("worked for a millisecond");
    return 0;
}
