/* Six threads count under one mutex of each type; the sum is right, the order of entry is the schedule's.
 *
 * expect: same
 */
#include "guest.h"

enum { THREADS = 6, ROUNDS = 500 };

static pthread_mutex_t mutex;
static long counter;
static uint64_t order;

static void *count(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        long seen = counter;
        if (i % 50 == 0)
            sched_yield();
        counter = seen + 1;
        order = order * 1099511628211u + (uintptr_t)arg;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return NULL;
}

int main(void)
{
    int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int t = 0; t < 4; t++) {
        pthread_mutexattr_t attr;
        pthread_t threads[THREADS];
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, types[t]);
        CHECK(pthread_mutex_init(&mutex, &attr) == 0);
        counter = 0;
        for (long i = 0; i < THREADS; i++)
            threads[i] = spawn(count, (void *)i);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        say("type %d: %ld", t, counter);
        note("order %016llx", (unsigned long long)order);
        CHECK(pthread_mutex_destroy(&mutex) == 0);
    }
    return 0;
}
