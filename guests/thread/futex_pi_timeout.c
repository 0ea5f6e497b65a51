/* A kernel lock that its owner keeps: the wait for it ends at its time.
 *
 * expect: same
 */
#include "futex.h"

static uint32_t word;

static void *try_for_a_while(void *arg)
{
    struct timespec until = to_timespec(now_ns(CLOCK_REALTIME) + 20 * NS_PER_MS);
    CHECK_ERRNO(futex(&word, FUTEX_LOCK_PI, 0, &until, NULL, 0), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= (int64_t)until.tv_sec * NS_PER_S + until.tv_nsec);
    CHECK_ERRNO(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EAGAIN);
    CHECK_ERRNO(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
    return arg;
}

int main(void)
{
    CHECK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    join(spawn(try_for_a_while, NULL));
    CHECK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    CHECK(word == 0);
    say("in time");
    return 0;
}
