/* Threads that wait while they end, in the destructors of their keys: for a semaphore, for time, and for their turn; also in a replica that continues from an image then.
 *
 * expect: same
 */
#include "guest.h"
#include <stdatomic.h>

enum { THREADS = 3, STEPS = 4, ROUNDS = 1500 };

static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t may_end;
static atomic_int ending;
static long counted;

static void end_slowly(void *value)
{
    long number = (long)value;
    double precise = 1.0 / (double)number;
    atomic_fetch_add(&ending, 1);
    for (int step = 0; step < STEPS; step++) {
        struct timespec short_time = {.tv_nsec = number * NS_PER_MS};
        CHECK(sem_wait(&may_end) == 0);
        for (int round = 0; round < ROUNDS; round++) {
            CHECK(pthread_mutex_lock(&mutex) == 0);
            counted += number;
            CHECK(pthread_mutex_unlock(&mutex) == 0);
        }
        CHECK(nanosleep(&short_time, NULL) == 0);
        note("thread %ld: step %d, %ld counted", number, step, counted);
    }
    CHECK(precise == 1.0 / (double)number);
    atomic_fetch_sub(&ending, 1);
}

static void *work(void *number)
{
    CHECK(pthread_setspecific(key, number) == 0);
    if ((long)number % 2 == 0)
        pthread_exit(number);
    return number;
}

int main(void)
{
    CHECK(pthread_key_create(&key, end_slowly) == 0 && sem_init(&may_end, 0, 0) == 0);
    pthread_t threads[THREADS];
    for (long n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], NULL, work, (void *)(n + 1)) == 0);
    for (int step = 0; step < STEPS * THREADS; step++) {
        sleep_ms(5);
        CHECK(atomic_load(&ending) > 0);
        CHECK(sem_post(&may_end) == 0);
    }
    for (long n = 0; n < THREADS; n++) {
        void *value;
        CHECK(pthread_join(threads[n], &value) == 0 && value == (void *)(n + 1));
    }
    CHECK(atomic_load(&ending) == 0);
    say("%ld counted", counted);
}
