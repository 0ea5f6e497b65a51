/* Robust mutexes: the owner's exit gives EOWNERDEAD, consistent repairs it, without it ENOTRECOVERABLE.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t mutex;

static void *lock_and_leave(void *arg)
{
    (void)arg;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    return NULL;
}

static void *lock_and_leave_later(void *arg)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(sem_post(arg) == 0);
    sleep_ms(20);
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t attr;
    int robust;
    sem_t locked;
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutexattr_getrobust(&attr, &robust) == 0 && robust == PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&mutex, &attr) == 0);
    join(spawn(lock_and_leave, NULL));
    CHECK(pthread_mutex_trylock(&mutex) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    say("owner gone: repaired");

    CHECK(sem_init(&locked, 0, 0) == 0);
    pthread_t thread = spawn(lock_and_leave_later, &locked);
    CHECK(sem_wait(&locked) == 0);
    CHECK(pthread_mutex_lock(&mutex) == EOWNERDEAD); /* Blocked while the owner left. */
    join(thread);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_lock(&mutex) == ENOTRECOVERABLE);
    CHECK(pthread_mutex_trylock(&mutex) == ENOTRECOVERABLE);
    CHECK(pthread_mutex_consistent(&mutex) == EINVAL);
    CHECK(pthread_mutex_destroy(&mutex) == 0);
    say("not repaired: not recoverable");
    return 0;
}
