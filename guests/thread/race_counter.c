/* A data race on purpose: four threads increment without a lock and yield between load and store. The lost updates are
 * the schedule's, so the final value must be the same in two Skein runs.
 *
 * expect: same
 */
#include "guest.h"

static volatile long counter;
static volatile uint64_t trail;

static void *bump(void *arg)
{
    for (int i = 0; i < 500; i++) {
        long seen = counter;
        uint64_t old = trail;
        if (i % 7 == (long)arg)
            sched_yield();
        counter = seen + 1;
        trail = old * 31 + (uintptr_t)arg;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        threads[i] = spawn(bump, (void *)i);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(counter >= 1 && counter <= 2000);
    note("counter %ld, trail %016llx", counter, (unsigned long long)trail);
    say("raced");
    return 0;
}
