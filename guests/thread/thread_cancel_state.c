/* Cancellation disabled and enabled again, testcancel, a request made before the thread blocks, pop(1).
 *
 * expect: same
 */
#include "guest.h"

static sem_t go, started;
static int cleaned;

static void clean(void *arg)
{
    cleaned += (int)(long)arg;
}

static void *disabled(void *arg)
{
    int old;
    (void)arg;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old) == 0 && old == PTHREAD_CANCEL_ENABLE);
    CHECK(sem_post(&started) == 0);
    CHECK(sem_wait(&go) == 0);
    sleep_ms(1); /* A cancellation point, but disabled. */
    pthread_testcancel();
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old) == 0 && old == PTHREAD_CANCEL_DISABLE);
    pthread_cleanup_push(clean, (void *)1);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return (void *)1;
}

static void *pending(void *arg)
{
    volatile long spins = 0;
    int old;
    (void)arg;
    pthread_cleanup_push(clean, (void *)10);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old) == 0 && old == PTHREAD_CANCEL_DEFERRED);
    CHECK(sem_post(&started) == 0);
    while (sem_trywait(&go) != 0)
        sched_yield();
    spins++;
    sleep(1000);
    pthread_cleanup_pop(0);
    return (void *)1;
}

static void *popped(void *arg)
{
    (void)arg;
    pthread_cleanup_push(clean, (void *)100);
    pthread_cleanup_push(clean, (void *)1000);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(1);
    pthread_cleanup_push(clean, (void *)10000);
    pthread_exit((void *)5);
    pthread_cleanup_pop(0);
}

int main(void)
{
    CHECK(sem_init(&go, 0, 0) == 0 && sem_init(&started, 0, 0) == 0);
    pthread_t thread = spawn(disabled, NULL);
    CHECK(sem_wait(&started) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(sem_post(&go) == 0);
    CHECK(join(thread) == PTHREAD_CANCELED);
    say("disabled until enabled: cleaned %d", cleaned);
    thread = spawn(pending, NULL);
    CHECK(sem_wait(&started) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(sem_post(&go) == 0);
    CHECK(join(thread) == PTHREAD_CANCELED);
    say("pending: cleaned %d", cleaned);
    say("exit value %ld", (long)join(spawn(popped, NULL)));
    say("pop and exit: cleaned %d", cleaned);
    return 0;
}
