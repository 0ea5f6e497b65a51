/* pthread_tryjoin_np, timedjoin_np, clockjoin_np: EBUSY, ETIMEDOUT, then the result.
 *
 * expect: same
 */
#include "guest.h"

static void *wait_for(void *arg)
{
    CHECK(sem_wait(arg) == 0);
    return (void *)77;
}

int main(void)
{
    sem_t go;
    void *result = NULL;
    CHECK(sem_init(&go, 0, 0) == 0);
    pthread_t thread = spawn(wait_for, &go);
    CHECK(pthread_tryjoin_np(thread, &result) == EBUSY);
    struct timespec until = to_timespec(now_ns(CLOCK_REALTIME) + 30 * NS_PER_MS);
    CHECK(pthread_timedjoin_np(thread, &result, &until) == ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    until = to_timespec(now_ns(CLOCK_MONOTONIC) + 30 * NS_PER_MS);
    CHECK(pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
    say("busy, timed out");
    CHECK(sem_post(&go) == 0);
    until = to_timespec(now_ns(CLOCK_REALTIME) + 100 * NS_PER_S);
    CHECK(pthread_timedjoin_np(thread, &result, &until) == 0);
    say("joined: %ld", (long)result);
    CHECK(sem_post(&go) == 0);
    thread = spawn(wait_for, &go);
    while (pthread_tryjoin_np(thread, &result) == EBUSY)
        sleep_ms(1);
    say("tryjoin: %ld", (long)result);
    return 0;
}
