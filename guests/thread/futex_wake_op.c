/* futex WAKE_OP: changes the second word and wakes there if the old value compares; BITSET chooses the woken threads.
 *
 * expect: same
 */
#include "futex.h"

static uint32_t first, second, ready;

static void *wait_on(void *arg)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(arg, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0);
    return NULL;
}

static void *wait_bits(void *arg)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(&first, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, (uint32_t)(uintptr_t)arg) == 0);
    return NULL;
}

static void settle(uint32_t count)
{
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < count)
        sched_yield();
    sleep_ms(100);
}

int main(void)
{
    pthread_t a = spawn(wait_on, &first), b = spawn(wait_on, &second);
    settle(2);
    long woken = futex(&first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second,
                       FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_EQ, 0));
    say("WAKE_OP: woken %ld, second word %u", woken, second);
    join(a);
    join(b);
    woken = futex(&first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second, FUTEX_OP(FUTEX_OP_SET, 3, FUTEX_OP_CMP_GT, 100));
    say("WAKE_OP: woken %ld, second word %u", woken, second);

    ready = 0;
    a = spawn(wait_bits, (void *)1), b = spawn(wait_bits, (void *)2);
    settle(2);
    say("bit 2: %ld", futex(&first, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 2));
    join(b);
    CHECK(pthread_tryjoin_np(a, NULL) == EBUSY);
    say("bit 4: %ld", futex(&first, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 4));
    say("any: %ld", futex(&first, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
    join(a);
    CHECK_ERRNO(futex(&first, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 0), EINVAL);
    return 0;
}
