/* futex REQUEUE and CMP_REQUEUE: waiters move to another word and are woken there.
 *
 * expect: same
 */
#include "futex.h"

static uint32_t first, second, ready, done;

static void *waiter(void *arg)
{
    (void)arg;
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(&first, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0);
    __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

int main(void)
{
    for (int compare = 0; compare < 2; compare++) {
        pthread_t threads[4];
        ready = done = 0;
        for (int i = 0; i < 4; i++)
            threads[i] = spawn(waiter, NULL);
        while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 4)
            sched_yield();
        sleep_ms(100);
        int op = compare ? FUTEX_CMP_REQUEUE_PRIVATE : FUTEX_REQUEUE_PRIVATE;
        if (compare)
            CHECK_ERRNO(futex(&first, op, 1, (void *)10, &second, 99), EAGAIN);
        /* REQUEUE returns those woken, CMP_REQUEUE those woken and moved. */
        say("op %d: %ld", compare, futex(&first, op, 1, (void *)10, &second, 0));
        CHECK(futex(&first, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0) == 0);
        say("woken at the second word: %ld", futex(&second, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        CHECK(done == 4);
    }
    return 0;
}
