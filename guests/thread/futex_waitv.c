/* futex_waitv: woken at one of several words, values that do not fit, timeouts.
 *
 * expect: same
 */
#include "futex.h"

static struct futex_waitv words[3];
static uint32_t values[3];

static long waitv(unsigned count, const struct timespec *until)
{
    return syscall(SYS_futex_waitv, words, count, 0, until, CLOCK_MONOTONIC);
}

static void *wait_at_all(void *arg)
{
    long hit = waitv(3, NULL);
    CHECK(hit >= 0);
    return (void *)(intptr_t)(hit + (intptr_t)arg);
}

int main(void)
{
    for (int i = 0; i < 3; i++)
        words[i] = (struct futex_waitv){.uaddr = (uintptr_t)&values[i], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
    for (int i = 0; i < 3; i++) {
        pthread_t waiter = spawn(wait_at_all, (void *)100);
        while (futex(&values[i], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0)
            sched_yield();
        CHECK((intptr_t)join(waiter) == 100 + i);
    }
    say("woken at each");
    values[1] = 5;
    CHECK_ERRNO(waitv(3, NULL), EAGAIN);
    words[1].val = 5;
    struct timespec until = to_timespec(now_ns(CLOCK_MONOTONIC) + 10 * NS_PER_MS);
    CHECK_ERRNO(waitv(3, &until), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= (int64_t)until.tv_sec * NS_PER_S + until.tv_nsec);
    CHECK_ERRNO(waitv(0, NULL), EINVAL);
    words[2].flags = 0;
    CHECK_ERRNO(waitv(3, NULL), EINVAL);
    say("values, timeout, errors");
    return 0;
}
