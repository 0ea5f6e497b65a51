/* Semaphores: init, post, wait, trywait, timedwait, clockwait, getvalue, limits; a ping-pong of two threads.
 *
 * expect: same
 */
#include "guest.h"
#include <limits.h>

static sem_t ping, pong;

static void *answer(void *arg)
{
    (void)arg;
    for (int i = 0; i < 300; i++) {
        CHECK(sem_wait(&ping) == 0);
        CHECK(sem_post(&pong) == 0);
    }
    return NULL;
}

int main(void)
{
    sem_t sem;
    int value;
    CHECK_ERRNO(sem_init(&sem, 0, (unsigned)INT_MAX + 1), EINVAL);
    CHECK(sem_init(&sem, 0, 2) == 0);
    CHECK(sem_wait(&sem) == 0 && sem_trywait(&sem) == 0);
    CHECK_ERRNO(sem_trywait(&sem), EAGAIN);
    CHECK(sem_getvalue(&sem, &value) == 0);
    say("value %d", value);
    struct timespec until = to_timespec(now_ns(CLOCK_REALTIME) + 30 * NS_PER_MS);
    CHECK_ERRNO(sem_timedwait(&sem, &until), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    until = to_timespec(now_ns(CLOCK_MONOTONIC) + 30 * NS_PER_MS);
    CHECK_ERRNO(sem_clockwait(&sem, CLOCK_MONOTONIC, &until), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    until.tv_nsec = NS_PER_S;
    CHECK_ERRNO(sem_timedwait(&sem, &until), EINVAL);
    CHECK(sem_post(&sem) == 0 && sem_post(&sem) == 0 && sem_post(&sem) == 0);
    until = to_timespec(1);
    CHECK(sem_timedwait(&sem, &until) == 0); /* Available: the past deadline does not matter. */
    CHECK(sem_getvalue(&sem, &value) == 0);
    say("value %d", value);
    CHECK(sem_destroy(&sem) == 0);
    CHECK(sem_init(&sem, 0, INT_MAX) == 0);
    CHECK_ERRNO(sem_post(&sem), EOVERFLOW);

    CHECK(sem_init(&ping, 0, 0) == 0 && sem_init(&pong, 0, 0) == 0);
    pthread_t thread = spawn(answer, NULL);
    for (int i = 0; i < 300; i++) {
        CHECK(sem_post(&ping) == 0);
        CHECK(sem_wait(&pong) == 0);
    }
    join(thread);
    say("ping-pong done");
    return 0;
}
