/* The monotonic clock never goes backwards from one thread to another, across sleeps and handovers.
 *
 * expect: same
 */
#include "guest.h"

static sem_t turn[2];
static int64_t last;

static void *reader(void *arg)
{
    long me = (long)arg;
    for (int i = 0; i < 100; i++) {
        CHECK(sem_wait(&turn[me]) == 0);
        int64_t now = now_ns(CLOCK_MONOTONIC);
        CHECK(now >= last);
        last = now;
        if (i % 25 == 0)
            sleep_ms(1);
        CHECK(sem_post(&turn[1 - me]) == 0);
    }
    return NULL;
}

int main(void)
{
    CHECK(sem_init(&turn[0], 0, 1) == 0 && sem_init(&turn[1], 0, 0) == 0);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    pthread_t a = spawn(reader, (void *)0), b = spawn(reader, (void *)1);
    join(a);
    join(b);
    CHECK(last - start >= 8 * NS_PER_MS);
    note("took %lld ns", (long long)(last - start));
    say("never backwards");
    return 0;
}
