/* Barriers: no thread passes early, exactly one serial thread a round, reused.
 *
 * expect: same
 */
#include "guest.h"

enum { THREADS = 4, ROUNDS = 25 };

static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int arrived[ROUNDS], serial;

static void *member(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        arrived[i]++;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        int rc = pthread_barrier_wait(&barrier);
        CHECK(arrived[i] == THREADS);
        CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
        if (rc != 0) {
            CHECK(pthread_mutex_lock(&lock) == 0);
            serial++;
            CHECK(pthread_mutex_unlock(&lock) == 0);
            note("round %d: serial is %ld", i, (long)arg);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, 0) == EINVAL);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (long i = 0; i < THREADS; i++)
        threads[i] = spawn(member, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 1) == 0);
    CHECK(pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD);
    say("%d rounds, %d serial", ROUNDS, serial);
    return 0;
}
