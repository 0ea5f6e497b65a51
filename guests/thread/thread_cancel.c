/* Cancellation at each kind of blocking call: cleanup handlers run, the result is PTHREAD_CANCELED, the mutex is held.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem, ready;
static int p[2], cleanups;

static void clean(void *arg)
{
    CHECK(arg == &cleanups);
    cleanups++;
}

static void unlock(void *arg)
{
    CHECK(pthread_mutex_unlock(arg) == 0); /* cond_wait takes the mutex again before it leaves. */
    cleanups++;
}

static void *blocked(void *arg)
{
    long kind = (long)arg;
    char byte;
    struct pollfd fds = {.fd = p[0], .events = POLLIN};
    struct epoll_event event;
    CHECK(sem_post(&ready) == 0);
    pthread_cleanup_push(clean, &cleanups);
    if (kind == 0) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        pthread_cleanup_push(unlock, &lock);
        for (;;)
            pthread_cond_wait(&cond, &lock);
        pthread_cleanup_pop(0);
    } else if (kind == 1) {
        CHECK(read(p[0], &byte, 1) == 1);
    } else if (kind == 2) {
        sleep(1000);
    } else if (kind == 3) {
        sem_wait(&sem);
    } else if (kind == 4) {
        poll(&fds, 1, -1);
    } else if (kind == 5) {
        epoll_wait(epoll_create1(0), &event, 1, -1);
    } else if (kind == 6) {
        pause();
    } else {
        int port;
        accept(tcp_listen(AF_INET, &port), NULL, NULL);
    }
    CHECK(!"not cancelled");
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits(void *arg)
{
    CHECK(sem_wait(arg) == 0);
    return arg;
}

static void *joins(void *arg)
{
    CHECK(pthread_cancel(pthread_self()) == 0);
    pthread_join((pthread_t)arg, NULL);
    CHECK(!"not cancelled");
    return NULL;
}

/* A thread whose joiner was cancelled can still be joined. */
static void cancelled_joiner(void)
{
    pthread_t waiter = spawn(waits, &sem);
    CHECK(join(spawn(joins, (void *)waiter)) == PTHREAD_CANCELED);
    CHECK(sem_post(&sem) == 0);
    CHECK(join(waiter) == &sem);
    say("join: cancelled, and its thread joined by another");
}

int main(void)
{
    static const char *names[] = {"cond_wait", "read", "sleep", "sem_wait", "poll", "epoll_wait", "pause", "accept"};
    CHECK(sem_init(&sem, 0, 0) == 0 && sem_init(&ready, 0, 0) == 0 && pipe(p) == 0);
    for (long kind = 0; kind < 8; kind++) {
        cleanups = 0;
        pthread_t thread = spawn(blocked, (void *)kind);
        CHECK(sem_wait(&ready) == 0);
        sleep_ms(10);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(join(thread) == PTHREAD_CANCELED);
        say("%s: cancelled, %d cleanups", names[kind], cleanups);
    }
    CHECK(pthread_mutex_trylock(&lock) == 0);
    cancelled_joiner();
    return 0;
}
