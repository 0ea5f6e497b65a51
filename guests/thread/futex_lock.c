/* A mutex built on futex by hand (three states), as other languages' runtimes have: six threads, sum right.
 *
 * expect: same
 */
#include "futex.h"

static uint32_t state; /* 0 free, 1 held, 2 held and waited for */
static long counter;
static uint64_t order;

static void lock(void)
{
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(&state, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(&state, 2, __ATOMIC_ACQUIRE) != 0)
        CHECK(futex(&state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0) == 0 || errno == EAGAIN);
}

static void unlock(void)
{
    if (__atomic_exchange_n(&state, 0, __ATOMIC_RELEASE) == 2)
        CHECK(futex(&state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0);
}

static void *count(void *arg)
{
    for (int i = 0; i < 300; i++) {
        lock();
        long seen = counter;
        if (i % 20 == 0)
            sched_yield();
        counter = seen + 1;
        order = order * 31 + (uintptr_t)arg;
        unlock();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        threads[i] = spawn(count, (void *)i);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    say("counter %ld", counter);
    note("order %016llx", (unsigned long long)order);
    return 0;
}
