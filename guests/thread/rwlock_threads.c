/* Readers and writers over one rwlock: readers never see a half-done change, the sum is right.
 *
 * expect: same
 */
#include "guest.h"

enum { ROUNDS = 300 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long a, b;
static uint64_t order;

static void *writer(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_rwlock_wrlock(&lock) == 0);
        a++;
        if (i % 30 == 0)
            sched_yield();
        b++;
        order = order * 31 + (uintptr_t)arg;
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}

static void *reader(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
        CHECK(a == b);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        threads[i] = spawn(i < 2 ? writer : reader, (void *)i);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    say("a %ld b %ld", a, b);
    note("order %016llx", (unsigned long long)order);
    return 0;
}
