/* rwlocks: several readers at once, a writer alone, try and timed forms, EDEADLK for the owner, static initialiser.
 *
 * expect: same
 */
#include "guest.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *from_outside(void *arg)
{
    int held_for_writing = *(int *)arg;
    struct timespec until = to_timespec(now_ns(CLOCK_REALTIME) + 20 * NS_PER_MS);
    CHECK(pthread_rwlock_trywrlock(&lock) == EBUSY);
    CHECK(pthread_rwlock_timedwrlock(&lock, &until) == ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    if (held_for_writing) {
        CHECK(pthread_rwlock_tryrdlock(&lock) == EBUSY);
        until = to_timespec(now_ns(CLOCK_MONOTONIC) + 20 * NS_PER_MS);
        CHECK(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
        CHECK(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
    } else {
        CHECK(pthread_rwlock_tryrdlock(&lock) == 0);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
        CHECK(pthread_rwlock_timedrdlock(&lock, &until) == 0);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}

int main(void)
{
    int writing = 0;
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    join(spawn(from_outside, &writing));
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    say("readers share, writers wait");
    writing = 1;
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    CHECK(pthread_rwlock_wrlock(&lock) == EDEADLK);
    CHECK(pthread_rwlock_rdlock(&lock) == EDEADLK);
    join(spawn(from_outside, &writing));
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_rwlock_trywrlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    say("a writer is alone");
    pthread_rwlock_t other;
    CHECK(pthread_rwlock_init(&other, NULL) == 0);
    CHECK(pthread_rwlock_destroy(&other) == 0);
    return 0;
}
