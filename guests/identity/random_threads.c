/* Randomness drawn by several threads: never the same bytes twice; who gets which is the schedule's.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/random.h>

static uint64_t drawn[4][50];

static void *draw(void *arg)
{
    for (int i = 0; i < 50; i++) {
        CHECK(getrandom(&drawn[(long)arg][i], 8, 0) == 8);
        if (i % 10 == 0)
            sched_yield();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    uint64_t sum = 0;
    for (long i = 0; i < 4; i++)
        threads[i] = spawn(draw, (void *)i);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    uint64_t *all = &drawn[0][0];
    for (int i = 0; i < 200; i++) {
        sum = sum * 31 + all[i];
        for (int k = 0; k < i; k++)
            CHECK(all[i] != all[k]);
    }
    note("sum %016llx", (unsigned long long)sum);
    say("200 different numbers");
    return 0;
}
