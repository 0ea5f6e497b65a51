/* pthread_once from many threads: run once, all wait for its end; again after being cancelled inside.
 *
 * expect: same
 */
#include "guest.h"

static pthread_once_t once = PTHREAD_ONCE_INIT, cancelled_once = PTHREAD_ONCE_INIT;
static int runs, tries;
static sem_t inside;

static void init(void)
{
    sleep_ms(20);
    runs++;
}

static void *user(void *arg)
{
    (void)arg;
    CHECK(pthread_once(&once, init) == 0);
    CHECK(runs == 1);
    return NULL;
}

static void init_cancelled_first(void)
{
    if (++tries == 1) {
        CHECK(sem_post(&inside) == 0);
        sleep(1000);
    }
}

static void *victim(void *arg)
{
    (void)arg;
    CHECK(pthread_once(&cancelled_once, init_cancelled_first) == 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        threads[i] = spawn(user, NULL);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    say("runs %d", runs);
    CHECK(sem_init(&inside, 0, 0) == 0);
    pthread_t thread = spawn(victim, NULL);
    CHECK(sem_wait(&inside) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(join(thread) == PTHREAD_CANCELED);
    CHECK(join(spawn(victim, NULL)) == NULL);
    say("tries %d", tries);
    return 0;
}
