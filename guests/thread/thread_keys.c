/* Thread-specific data: own values, destructors at exit, again while values remain, none for the deleted key; __thread.
 *
 * expect: same
 */
#include "guest.h"

static pthread_key_t key, again, deleted;
static __thread int local = 5;
/* Natively both threads' destructors run at once. */
static _Atomic int destroyed, rounds;

static void destroy(void *value)
{
    destroyed += (int)(intptr_t)value;
}

static void destroy_again(void *value)
{
    rounds++;
    if ((intptr_t)value > 1)
        CHECK(pthread_setspecific(again, (void *)((intptr_t)value - 1)) == 0);
}

static void *user(void *arg)
{
    CHECK(pthread_getspecific(key) == NULL);
    CHECK(local == 5);
    local = (int)(intptr_t)arg;
    CHECK(pthread_setspecific(key, arg) == 0);
    CHECK(pthread_setspecific(again, (void *)3) == 0);
    CHECK(pthread_setspecific(deleted, arg) == 0);
    sleep_ms(5);
    CHECK(pthread_getspecific(key) == arg);
    CHECK(local == (int)(intptr_t)arg);
    CHECK(pthread_setspecific(deleted, NULL) == 0);
    return NULL;
}

int main(void)
{
    CHECK(pthread_key_create(&key, destroy) == 0);
    CHECK(pthread_key_create(&again, destroy_again) == 0);
    CHECK(pthread_key_create(&deleted, destroy) == 0);
    pthread_t a = spawn(user, (void *)10), b = spawn(user, (void *)32);
    join(a);
    join(b);
    say("destroyed %d, rounds %d, main's local %d", destroyed, rounds, local);
    CHECK(pthread_key_delete(key) == 0);
    CHECK(pthread_setspecific(key, NULL) == EINVAL);
    CHECK(pthread_key_delete(key) == EINVAL);
    return 0;
}
