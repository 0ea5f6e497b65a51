/* Mutex types: normal, recursive, errorcheck, adaptive; lock, trylock, unlock, and the error of each misuse.
 *
 * expect: same
 */
#include "guest.h"

static void *try_other(void *arg)
{
    return (void *)(intptr_t)pthread_mutex_trylock(arg);
}

static void *unlock_other(void *arg)
{
    return (void *)(intptr_t)pthread_mutex_unlock(arg);
}

static int elsewhere(void *(*body)(void *), pthread_mutex_t *mutex)
{
    return (int)(intptr_t)join(spawn(body, mutex));
}

static void exercise(const char *name, int type)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t mutex;
    int got;
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_settype(&attr, type) == 0);
    CHECK(pthread_mutexattr_gettype(&attr, &got) == 0 && got == type);
    CHECK(pthread_mutex_init(&mutex, &attr) == 0);
    CHECK(pthread_mutexattr_destroy(&attr) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(elsewhere(try_other, &mutex) == EBUSY);
    if (type == PTHREAD_MUTEX_RECURSIVE) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(pthread_mutex_trylock(&mutex) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        CHECK(elsewhere(try_other, &mutex) == EBUSY);
        CHECK(elsewhere(unlock_other, &mutex) == EPERM);
    } else {
        CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    }
    if (type == PTHREAD_MUTEX_ERRORCHECK) {
        CHECK(pthread_mutex_lock(&mutex) == EDEADLK);
        CHECK(elsewhere(unlock_other, &mutex) == EPERM);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    if (type == PTHREAD_MUTEX_ERRORCHECK || type == PTHREAD_MUTEX_RECURSIVE)
        CHECK(pthread_mutex_unlock(&mutex) == EPERM);
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_destroy(&mutex) == 0);
    say("%s: ok", name);
}

int main(void)
{
    exercise("normal", PTHREAD_MUTEX_NORMAL);
    exercise("recursive", PTHREAD_MUTEX_RECURSIVE);
    exercise("errorcheck", PTHREAD_MUTEX_ERRORCHECK);
    exercise("adaptive", PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutexattr_t attr;
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_settype(&attr, 99) == EINVAL);
    return 0;
}
