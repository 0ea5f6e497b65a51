/* Random sequences of futex calls by one thread, nothing blocks: waits for another value, with no time or a wrong one, wakes, moves, changes of a second word,
 * locks with priority inheritance that are free, held or of nobody, several words at once, wrong addresses, flags and numbers. Linux and Skein answer alike:
 * results, errors and the words' values.
 *
 * expect: same
 * sequences: 3000
 */
#include "sequence.h"
#include <linux/futex.h>
#include <linux/time_types.h>
#include <sys/syscall.h>

#define WORDS 4

static uint32_t words[WORDS + 1];
static pid_t own;

static long futex(void *word, int op, uint32_t value, const void *time, void *other, uint32_t third)
{
    return syscall(SYS_futex, word, op, value, time, other, third);
}

static const char *shown(uint32_t value)
{
    static char text[4][32];
    static unsigned next;
    char *out = text[next++ % 4];
    if ((value & FUTEX_TID_MASK) == (uint32_t)own)
        snprintf(out, 32, "own+%x", value & ~FUTEX_TID_MASK);
    else
        snprintf(out, 32, "%x", value);
    return out;
}

static void told_words(void)
{
    say("  %s %s %s %s", shown(words[0]), shown(words[1]), shown(words[2]), shown(words[3]));
}

static void *draw_word(int *number)
{
    *number = (int)below(WORDS);
    switch (below(24)) {
    case 0:
        *number = -1;
        return NULL;
    case 1:
        *number = -2;
        return (char *)&words[0] + 1 + below(3);
    default:
        return &words[*number];
    }
}

/* The word's own value, or another. */
static uint32_t draw_value(int number)
{
    return number >= 0 && below(3) ? words[number] : below(4);
}

static const struct timespec *draw_time(struct timespec *time, int absolute)
{
    static const struct timespec none = {0, 0};
    switch (below(6)) {
    case 0:
        *time = (struct timespec){0, -1};
        break;
    case 1:
        *time = (struct timespec){-1, 0};
        break;
    case 2:
        *time = (struct timespec){0, 1000000000};
        break;
    case 3:
        if (absolute) {
            *time = (struct timespec){0, 1};
            break;
        }
        /* fallthrough */
    default:
        *time = none;
        break;
    }
    return time;
}

static int draw_flags(void)
{
    return below(2) ? FUTEX_PRIVATE_FLAG : 0;
}

static void wait_one(void)
{
    int n, flags = draw_flags(), bits = (int)below(2);
    void *at = draw_word(&n);
    uint32_t value = draw_value(n), set = below(4) ? FUTEX_BITSET_MATCH_ANY : below(2);
    struct timespec time;
    if (below(4) == 0)
        flags |= FUTEX_CLOCK_REALTIME;
    draw_time(&time, bits);
    if (bits)
        tell(futex(at, FUTEX_WAIT_BITSET | flags, value, &time, NULL, set), "wait %d for %s, %x, bits %x, %ld.%09ld", n,
             shown(value), (unsigned)flags, set, (long)time.tv_sec, time.tv_nsec);
    else
        tell(futex(at, FUTEX_WAIT | flags, value, &time, NULL, 0), "wait %d for %s, %x, %ld.%09ld", n, shown(value),
             (unsigned)flags, (long)time.tv_sec, time.tv_nsec);
}

/* No address is one like any other as long as the word is the process's own and nobody reads it: so it is given for words that may be shared. */
static void wake(void)
{
    int n, flags = draw_flags(), count = (int)below(5) - 1;
    void *at = draw_word(&n);
    if (at == NULL)
        flags = 0;
    if (below(8) == 0)
        flags |= FUTEX_CLOCK_REALTIME;
    if (below(2))
        tell(futex(at, FUTEX_WAKE | flags, (uint32_t)count, NULL, NULL, 0), "wake %d, %d, %x", n, count, (unsigned)flags);
    else {
        uint32_t set = below(4) ? 1 + below(9) : 0;
        tell(futex(at, FUTEX_WAKE_BITSET | flags, (uint32_t)count, NULL, NULL, set), "wake %d, %d, %x, bits %x", n, count,
             (unsigned)flags, set);
    }
}

static void move(void)
{
    int n, m, flags = draw_flags(), count = (int)below(5) - 1, moved = (int)below(5) - 1;
    void *at = draw_word(&n), *to = draw_word(&m);
    uint32_t value = draw_value(n);
    if (at == NULL || to == NULL)
        flags = 0;
    if (below(3))
        tell(futex(at, FUTEX_CMP_REQUEUE | flags, (uint32_t)count, (void *)(long)moved, to, value),
             "move %d to %d if %s, %d %d", n, m, shown(value), count, moved);
    else
        tell(futex(at, FUTEX_REQUEUE | flags, (uint32_t)count, (void *)(long)moved, to, 0), "move %d to %d, %d %d", n, m,
             count, moved);
}

static void wake_and_change(void)
{
    int n, m, flags = draw_flags();
    void *at = draw_word(&n), *other = draw_word(&m);
    if (at == NULL || other == NULL)
        flags = 0;
    /* Some operations and comparisons are wrong. */
    uint32_t op = below(6), shift = below(4) == 0 ? FUTEX_OP_OPARG_SHIFT : 0, compare = below(7);
    uint32_t change = FUTEX_OP(op | shift, below(32), compare, below(4));
    if (m >= 0 && (words[m] & FUTEX_TID_MASK) == (uint32_t)own)
        /* A number of the thread's. */
        return;
    tell(futex(at, FUTEX_WAKE_OP | flags, 1, (void *)1L, other, change), "wake %d, change %d by %08x", n, m, change);
    told_words();
}

static void lock(void)
{
    int n, flags = draw_flags();
    void *at = draw_word(&n);
    struct timespec past = {0, 1};
    uint32_t holder = n < 0 ? 0 : words[n] & FUTEX_TID_MASK;
    if (holder != 0 && holder != (uint32_t)own && holder <= 4 << 20)
        /* Perhaps the number of another thread of the system. */
        return;
    switch (below(5)) {
    case 0:
    case 1:
        tell(futex(at, FUTEX_TRYLOCK_PI | flags, 0, NULL, NULL, 0), "try lock %d", n);
        break;
    case 2:
        tell(futex(at, (below(2) ? FUTEX_LOCK_PI : FUTEX_LOCK_PI2) | flags, 0, &past, NULL, 0), "lock %d", n);
        break;
    default:
        tell(futex(at, FUTEX_UNLOCK_PI | flags, 0, NULL, NULL, 0), "unlock %d", n);
        break;
    }
    told_words();
}

static void wait_several(void)
{
    struct futex_waitv waiters[3];
    unsigned count = below(4), flags = below(8) ? 0 : 1;
    struct __kernel_timespec past = {0, below(4) ? 1 : -1};
    clockid_t clock = below(4) ? CLOCK_MONOTONIC : below(2) ? CLOCK_REALTIME : CLOCK_BOOTTIME;
    memset(waiters, 0, sizeof waiters);
    for (int i = 0; i < 3; i++) {
        int n;
        waiters[i].uaddr = (uintptr_t)draw_word(&n);
        waiters[i].val = draw_value(n);
        waiters[i].flags = below(8) ? FUTEX_32 | FUTEX_PRIVATE_FLAG : below(4);
        if (waiters[i].uaddr == 0)
            waiters[i].flags &= ~(uint32_t)FUTEX_PRIVATE_FLAG;
        waiters[i].__reserved = below(12) == 0;
        say("  %d for %s, %x, %u", n, shown((uint32_t)waiters[i].val), waiters[i].flags, waiters[i].__reserved);
    }
    tell(syscall(SYS_futex_waitv, waiters, count, flags, &past, clock), "wait for %u, %x, clock %d, %lld", count, flags, clock,
         (long long)past.tv_nsec);
}

static void wrong(void)
{
    static const int numbers[] = {FUTEX_FD, 14, 99, FUTEX_WAIT_REQUEUE_PI};
    struct {
        void *list;
    } head = {NULL};
    int n, op = ONE_OF(numbers);
    switch (below(2)) {
    case 0:
        if (op != FUTEX_WAIT_REQUEUE_PI)
            tell(futex(&words[0], op | draw_flags(), 0, NULL, &words[1], 0), "operation %d", op);
        break;
    default:
        n = 1 + (int)below(23);
        tell(syscall(SYS_set_robust_list, &head, n), "set_robust_list of %d bytes", n);
        break;
    }
}

static void act(void)
{
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
        wait_one();
        break;
    case 3:
        wake();
        break;
    case 4:
    case 5:
        move();
        break;
    case 6:
    case 7:
        wake_and_change();
        break;
    case 8:
    case 9:
        lock();
        break;
    case 10:
        wait_several();
        break;
    default:
        wrong();
        break;
    }
}

static void end(void)
{
    memset(words, 0, sizeof words);
}

int main(int argc, char **argv)
{
    own = gettid();
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
