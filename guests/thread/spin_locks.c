/* Locks made of atomics: a ticket lock, and test-and-set with and without `pause`, with waits that grow up to a bound. Their holders sleep.
 *
 * expect: same
 */
#include "spin.h"

#define THREADS 4
#define ROUNDS 6

static atomic_uint next_ticket, serving;
static atomic_flag plain = ATOMIC_FLAG_INIT, polite = ATOMIC_FLAG_INIT, patient = ATOMIC_FLAG_INIT;
static int counters[4];

static void lock(int kind)
{
    switch (kind) {
    case 0: {
        unsigned mine = atomic_fetch_add(&next_ticket, 1);
        while (atomic_load(&serving) != mine)
            PAUSE();
        break;
    }
    case 1:
        while (atomic_flag_test_and_set(&plain))
            ;
        break;
    case 2:
        while (atomic_flag_test_and_set(&polite))
            PAUSE();
        break;
    default: {
        int wait = 1;
        while (atomic_flag_test_and_set(&patient)) {
            for (volatile int i = 0; i < wait; i++)
                PAUSE();
            if (wait < 256)
                wait *= 2;
        }
    }
    }
}

static void unlock(int kind)
{
    switch (kind) {
    case 0:
        atomic_fetch_add(&serving, 1);
        break;
    case 1:
        atomic_flag_clear(&plain);
        break;
    case 2:
        atomic_flag_clear(&polite);
        break;
    default:
        atomic_flag_clear(&patient);
    }
}

static void *worker(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < 4; kind++) {
            lock(kind);
            int before = counters[kind];
            sleep_ms(1);
            counters[kind] = before + 1;
            fprintf(stderr, "%d has lock %d as number %d\n", me, kind, before);
            unlock(kind);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = spawn(worker, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    for (int kind = 0; kind < 4; kind++)
        say("lock %d: %d", kind, counters[kind]);
    return 0;
}
