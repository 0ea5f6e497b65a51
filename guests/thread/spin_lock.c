/* pthread spinlocks: lock, trylock, contended by four threads that yield inside; the holder is always let run.
 *
 * expect: same
 */
#include "guest.h"

static pthread_spinlock_t lock;
static long counter;

static void *count(void *arg)
{
    (void)arg;
    for (int i = 0; i < 200; i++) {
        CHECK(pthread_spin_lock(&lock) == 0);
        long seen = counter;
        if (i % 40 == 0)
            sched_yield();
        counter = seen + 1;
        CHECK(pthread_spin_unlock(&lock) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    CHECK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE) == 0);
    CHECK(pthread_spin_lock(&lock) == 0);
    CHECK(pthread_spin_trylock(&lock) == EBUSY);
    CHECK(pthread_spin_unlock(&lock) == 0);
    CHECK(pthread_spin_trylock(&lock) == 0);
    CHECK(pthread_spin_unlock(&lock) == 0);
    for (int i = 0; i < 4; i++)
        threads[i] = spawn(count, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(pthread_spin_destroy(&lock) == 0);
    say("counter %ld", counter);
    return 0;
}
