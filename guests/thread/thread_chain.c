/* Work handed down a chain of 10 threads by mutexes and conditions, 50 rounds: order is forced, so it is the transcript.
 *
 * expect: same
 */
#include "guest.h"

enum { STAGES = 10, ROUNDS = 50 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn[STAGES];
static int current;
static uint64_t trail;

static void *stage(void *arg)
{
    int me = (int)(long)arg;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (current != me)
            CHECK(pthread_cond_wait(&turn[me], &lock) == 0);
        trail = trail * 31 + (uint64_t)me + (uint64_t)i;
        current = (me + 1) % STAGES;
        CHECK(pthread_cond_signal(&turn[current]) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[STAGES];
    for (int i = 0; i < STAGES; i++)
        CHECK(pthread_cond_init(&turn[i], NULL) == 0);
    for (long i = STAGES - 1; i >= 0; i--)
        threads[i] = spawn(stage, (void *)i);
    for (int i = 0; i < STAGES; i++)
        join(threads[i]);
    say("trail %016llx", (unsigned long long)trail);
    return 0;
}
