/* Several sleepers wake in the order of their deadlines, whatever the order in which they went to sleep.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int order[6], woken;

static void *sleeper(void *arg)
{
    int rank = (int)(long)arg;
    sleep_ms(60 * (rank + 1));
    CHECK(pthread_mutex_lock(&lock) == 0);
    order[woken++] = rank;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}

int main(void)
{
    long ranks[] = {4, 1, 5, 0, 3, 2};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        threads[i] = spawn(sleeper, (void *)ranks[i]);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    for (int i = 0; i < 6; i++)
        say("%d woke: rank %d", i, order[i]);
    return 0;
}
