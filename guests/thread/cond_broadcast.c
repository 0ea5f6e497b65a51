/* Broadcast: a gate that lets all waiting threads through, several times; signal without waiters is lost.
 *
 * expect: same
 */
#include "guest.h"

enum { THREADS = 5, ROUNDS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER, all_in = PTHREAD_COND_INITIALIZER;
static int generation, waiting, passed;

static void *visitor(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        int mine = generation;
        if (++waiting == THREADS)
            CHECK(pthread_cond_signal(&all_in) == 0);
        while (generation == mine)
            CHECK(pthread_cond_wait(&gate, &lock) == 0);
        passed++;
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    CHECK(pthread_cond_signal(&gate) == 0);
    CHECK(pthread_cond_broadcast(&gate) == 0);
    for (int i = 0; i < THREADS; i++)
        threads[i] = spawn(visitor, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (waiting < THREADS)
            CHECK(pthread_cond_wait(&all_in, &lock) == 0);
        waiting = 0;
        generation++;
        CHECK(pthread_cond_broadcast(&gate) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    say("passed %d", passed);
    return 0;
}
