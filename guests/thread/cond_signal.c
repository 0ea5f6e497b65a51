/* Condition variables: signal wakes one, broadcast wakes all; a bounded queue between producers and consumers.
 *
 * expect: same
 */
#include "guest.h"

enum { ITEMS = 400, ROOM = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int queue[ROOM], head, used, consumed;
static long sum;
static uint64_t order;

static void *producer(void *arg)
{
    for (int i = 0; i < ITEMS; i++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (used == ROOM)
            CHECK(pthread_cond_wait(&not_full, &lock) == 0);
        queue[(head + used++) % ROOM] = (int)(long)arg * ITEMS + i;
        CHECK(pthread_cond_signal(&not_empty) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return NULL;
}

static void *consumer(void *arg)
{
    (void)arg;
    for (;;) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (used == 0 && consumed < 3 * ITEMS)
            CHECK(pthread_cond_wait(&not_empty, &lock) == 0);
        if (used == 0)
            break;
        sum += queue[head];
        order = order * 1099511628211u + (uint64_t)queue[head];
        head = (head + 1) % ROOM;
        used--;
        if (++consumed == 3 * ITEMS)
            CHECK(pthread_cond_broadcast(&not_empty) == 0);
        CHECK(pthread_cond_signal(&not_full) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[7];
    for (long i = 0; i < 3; i++)
        threads[i] = spawn(producer, (void *)i);
    for (int i = 3; i < 7; i++)
        threads[i] = spawn(consumer, NULL);
    for (int i = 0; i < 7; i++)
        join(threads[i]);
    say("consumed %d, sum %ld", consumed, sum);
    note("order %016llx", (unsigned long long)order);
    CHECK(pthread_cond_destroy(&not_empty) == 0 && pthread_cond_destroy(&not_full) == 0);
    return 0;
}
