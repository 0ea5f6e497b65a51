/* A polite spinner: polls a variable with sched_yield, usleep(0) or a clock call between; the setter gets its turns.
 *
 * expect: same
 */
#include "guest.h"

static volatile int flag;

static void *setter(void *arg)
{
    sleep_ms(5);
    flag = (int)(long)arg;
    return NULL;
}

int main(void)
{
    pthread_t thread = spawn(setter, (void *)1);
    while (flag != 1)
        sched_yield();
    join(thread);
    say("by sched_yield");
    thread = spawn(setter, (void *)2);
    while (flag != 2)
        usleep(0);
    join(thread);
    say("by usleep");
    thread = spawn(setter, (void *)3);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    while (flag != 3)
        CHECK(now_ns(CLOCK_MONOTONIC) >= start);
    join(thread);
    say("by the clock");
    int64_t until = now_ns(CLOCK_MONOTONIC) + 10 * NS_PER_MS;
    while (now_ns(CLOCK_MONOTONIC) < until)
        ;
    say("waited for the clock itself");
    return 0;
}
