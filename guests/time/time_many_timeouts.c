/* Many timeouts at once: 20 threads wait with different limits on one condition that never comes; all return in order.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int64_t start;
static int late;

static void *waiter(void *arg)
{
    int64_t wait_ns = (20 + (long)arg * 7 % 20 * 5) * NS_PER_MS;
    struct timespec until = to_timespec(start + wait_ns);
    CHECK(pthread_mutex_lock(&lock) == 0);
    CHECK(pthread_cond_clockwait(&never, &lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= start + wait_ns);
    late++;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[20];
    start = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < 20; i++)
        threads[i] = spawn(waiter, (void *)i);
    for (int i = 0; i < 20; i++)
        join(threads[i]);
    say("%d timed out", late);
    return 0;
}
