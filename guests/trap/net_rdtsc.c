/* The time stamp counter by instruction, and CPUID's rdrand bit: trapped, virtual or hidden, never the host's.
 *
 * expect: same
 * or fatal: rdtsc | time stamp
 */
#include "guest.h"
#include <cpuid.h>
#include <x86intrin.h>

int main(void)
{
    unsigned a, b, c, d;
    say("before");
    fflush(stdout);
    uint64_t first = __rdtsc();
    uint64_t second = __rdtsc();
    CHECK(second >= first);
    note("tsc %llu %llu", (unsigned long long)first, (unsigned long long)second);
    CHECK(__get_cpuid(1, &a, &b, &c, &d));
    note("rdrand %d", (c & bit_RDRND) != 0);
    say("read the time stamp counter");
    return 0;
}
