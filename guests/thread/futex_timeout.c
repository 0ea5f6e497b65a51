/* futex timeouts: relative with WAIT, absolute with WAIT_BITSET on both clocks, bad ones.
 *
 * expect: same
 */
#include "futex.h"

int main(void)
{
    uint32_t word = 5;
    struct timespec ts = to_timespec(30 * NS_PER_MS), bad = {0, -1};
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_PRIVATE, 5, &ts, NULL, 0), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30 * NS_PER_MS);
    say("relative");
    ts = to_timespec(now_ns(CLOCK_MONOTONIC) + 30 * NS_PER_MS);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 5, &ts, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= ts.tv_sec * NS_PER_S + ts.tv_nsec);
    say("absolute, monotonic");
    ts = to_timespec(now_ns(CLOCK_REALTIME) + 30 * NS_PER_MS);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 5, &ts, NULL, FUTEX_BITSET_MATCH_ANY),
                ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= ts.tv_sec * NS_PER_S + ts.tv_nsec);
    say("absolute, realtime");
    ts = to_timespec(1);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 5, &ts, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_PRIVATE, 5, &bad, NULL, 0), EINVAL);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 5, &ts, NULL, 0), EINVAL);
    say("in the past, and bad ones");
    return 0;
}
