/* futex by syscall(): WAIT and WAKE, private and shared, EAGAIN on a changed word, the number of woken threads.
 *
 * expect: same
 */
#include "futex.h"

static uint32_t word, ready;

static void *waiter(void *arg)
{
    int flag = *(int *)arg;
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
        CHECK(futex(&word, FUTEX_WAIT | flag, 0, NULL, NULL, 0) == 0 || errno == EAGAIN);
    return NULL;
}

int main(void)
{
    int flags[] = {FUTEX_PRIVATE_FLAG, 0};
    for (int f = 0; f < 2; f++) {
        pthread_t threads[3];
        word = ready = 0;
        CHECK_ERRNO(futex(&word, FUTEX_WAIT | flags[f], 1, NULL, NULL, 0), EAGAIN);
        CHECK(futex(&word, FUTEX_WAKE | flags[f], 10, NULL, NULL, 0) == 0);
        for (int i = 0; i < 3; i++)
            threads[i] = spawn(waiter, &flags[f]);
        while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 3)
            sched_yield();
        sleep_ms(100);
        __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
        long first = futex(&word, FUTEX_WAKE | flags[f], 1, NULL, NULL, 0);
        say("woken %ld, then %ld", first, futex(&word, FUTEX_WAKE | flags[f], 10, NULL, NULL, 0));
        for (int i = 0; i < 3; i++)
            join(threads[i]);
    }
    CHECK_ERRNO(futex(&word, 77, 0, NULL, NULL, 0), ENOSYS);
    CHECK_ERRNO(futex((uint32_t *)((char *)&word + 1), FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EINVAL);
    return 0;
}
