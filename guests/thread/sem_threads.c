/* A semaphore of three admits at most three of eight threads at a time.
 *
 * expect: same
 */
#include "guest.h"

static sem_t room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside, most, visits;

static void *visitor(void *arg)
{
    for (int i = 0; i < 30; i++) {
        CHECK(sem_wait(&room) == 0);
        CHECK(pthread_mutex_lock(&lock) == 0);
        if (++inside > most)
            most = inside;
        visits++;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        if (i % 10 == 0)
            sleep_ms(1);
        CHECK(pthread_mutex_lock(&lock) == 0);
        inside--;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        CHECK(sem_post(&room) == 0);
    }
    note("visitor %ld done", (long)arg);
    return NULL;
}

int main(void)
{
    pthread_t threads[8];
    CHECK(sem_init(&room, 0, 3) == 0);
    for (long i = 0; i < 8; i++)
        threads[i] = spawn(visitor, (void *)i);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    CHECK(most <= 3);
    note("most inside: %d", most);
    say("visits %d", visits);
    return 0;
}
