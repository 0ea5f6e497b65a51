/* FUTEX_LOCK_PI and its like, as plain locks: handed over, tried, timed, requeued from a condition.
 *
 * expect: same
 */
#include "futex.h"

static uint32_t lock_word, condition;
static volatile int inside, counter;

static void lock(void)
{
    uint32_t me = (uint32_t)gettid(), free_word = 0;
    if (!__atomic_compare_exchange_n(&lock_word, &free_word, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        CHECK(futex(&lock_word, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0) == 0);
    CHECK((lock_word & FUTEX_TID_MASK) == me);
}

static void unlock(void)
{
    uint32_t me = (uint32_t)gettid();
    if (!__atomic_compare_exchange_n(&lock_word, &me, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        CHECK(futex(&lock_word, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0) == 0);
}

static void *count(void *arg)
{
    for (int i = 0; i < 50; i++) {
        lock();
        CHECK(inside++ == 0);
        counter = counter + 1;
        if (i % 5 == 0)
            sched_yield();
        inside--;
        unlock();
    }
    return arg;
}

static void *wait_at_condition(void *arg)
{
    CHECK(futex(&condition, FUTEX_WAIT_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 0, NULL, &lock_word, 0) == 0);
    CHECK((lock_word & FUTEX_TID_MASK) == (uint32_t)gettid());
    counter = counter + 1;
    unlock();
    return arg;
}

int main(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = spawn(count, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(counter == 200 && lock_word == 0);
    say("200 times one at a time");

    CHECK(futex(&lock_word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0) == 0);
    CHECK_ERRNO(futex(&lock_word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    CHECK_ERRNO(futex(&lock_word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    CHECK(futex(&lock_word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0 && lock_word == 0);
    CHECK_ERRNO(futex(&lock_word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
    say("tried");

    counter = 0;
    lock();
    for (int i = 0; i < 3; i++)
        threads[i] = spawn(wait_at_condition, NULL);
    long moved = 0;
    while (moved < 3) {
        long n = futex(&condition, FUTEX_CMP_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 1, (void *)100, &lock_word, 0);
        CHECK(n >= 0);
        moved += n;
        sched_yield();
    }
    CHECK(counter == 0);
    CHECK_ERRNO(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, (void *)100, &lock_word, 7), EAGAIN);
    unlock();
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    CHECK(counter == 3 && (lock_word & FUTEX_TID_MASK) == 0);
    say("moved from a condition to the lock");
    return 0;
}
