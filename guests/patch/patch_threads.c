/* One place in several threads: one sleeps inside a call from it when it would be replaced; one is cancelled inside a call from it afterwards.
 * Libc's places are in the births and ends of six threads.
 *
 * expect: same
 * net: 2 places, 3 of libc, 1500 executions
 */
#include "patch.h"

static int word, cleaned;

static void *sleeper(void *arg)
{
    CHECK(call(SYS_futex, (long)&word, 0 /* FUTEX_WAIT */, 0, 0) == 0);
    return arg;
}

static void *reader(void *arg)
{
    uint64_t last = 0;
    for (int i = 0; i < OFTEN; i++) {
        uint64_t now = stamp();
        CHECK(now >= last);
        last = now;
        if (i % 16 == 0)
            CHECK(call(SYS_sched_yield, 0, 0, 0, 0) == 0);
    }
    return arg;
}

static void cleanup(void *arg)
{
    *(int *)arg += 1;
}

/* Natively a call of one's own is left only by a cancellation that may come at any time. */
static void *cancelled(void *arg)
{
    struct timespec long_time = {3600, 0};
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(cleanup, &cleaned);
    for (;;)
        call(SYS_nanosleep, (long)&long_time, 0, 0, 0);
    pthread_cleanup_pop(0);
    return arg;
}

static void often(void)
{
    for (int i = 0; i < OFTEN; i++)
        CHECK(call(SYS_getppid, 0, 0, 0, 0) == getppid());
}

int main(void)
{
    pthread_t asleep = spawn(sleeper, &word), readers[4];
    sleep_ms(20);
    often();
    while (call(SYS_futex, (long)&word, 1 /* FUTEX_WAKE */, 1, 0) == 0)
        sched_yield();
    CHECK(join(asleep) == &word);
    often();
    for (int i = 0; i < 4; i++)
        readers[i] = spawn(reader, &word);
    for (int i = 0; i < 4; i++)
        CHECK(join(readers[i]) == &word);
    asleep = spawn(cancelled, NULL);
    sleep_ms(20);
    CHECK(pthread_cancel(asleep) == 0);
    CHECK(join(asleep) == PTHREAD_CANCELED);
    CHECK(cleaned == 1);
    say("woken and cancelled");
    return 0;
}
