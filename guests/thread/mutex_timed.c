/* pthread_mutex_timedlock and clocklock: time out, get the lock in time, bad timeouts, uncontended with a past deadline.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *try_timed(void *arg)
{
    (void)arg;
    struct timespec until = to_timespec(now_ns(CLOCK_REALTIME) + 30 * NS_PER_MS);
    CHECK(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    until = to_timespec(now_ns(CLOCK_MONOTONIC) + 30 * NS_PER_MS);
    CHECK(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    until = to_timespec(1);
    CHECK(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
    until.tv_nsec = NS_PER_S;
    CHECK(pthread_mutex_timedlock(&mutex, &until) == EINVAL);
    return NULL;
}

static void *get_timed(void *arg)
{
    (void)arg;
    struct timespec until = to_timespec(now_ns(CLOCK_REALTIME) + 100 * NS_PER_S);
    CHECK(pthread_mutex_timedlock(&mutex, &until) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

int main(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    join(spawn(try_timed, NULL));
    say("timed out on both clocks");
    pthread_t thread = spawn(get_timed, NULL);
    sleep_ms(20);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    join(thread);
    say("got it in time");
    struct timespec past = to_timespec(1);
    CHECK(pthread_mutex_timedlock(&mutex, &past) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    say("a free mutex needs no time");
    return 0;
}
