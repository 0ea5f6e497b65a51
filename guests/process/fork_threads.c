/* A process with many threads forks from one of them; the child has only that one, and makes threads of its own.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Used in the child only: another thread may have had the first one at the fork. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn, total;
static int down[2];

static void *waiter(void *arg)
{
    pthread_mutex_lock(&mutex);
    while (turn != (int)(long)arg)
        pthread_cond_wait(&cond, &mutex);
    turn++;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *reader(void *arg)
{
    char byte;
    CHECK(read(down[0], &byte, 1) == 1);
    total += byte;
    return arg;
}

static void *adder(void *arg)
{
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&adding);
        total += (int)(long)arg;
        pthread_mutex_unlock(&adding);
    }
    return NULL;
}

static void *forker(void *arg)
{
    (void)arg;
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        pthread_t threads[4];
        total = 0;
        CHECK(gettid() == getpid());
        for (long i = 0; i < 4; i++)
            threads[i] = spawn(adder, (void *)(i + 1));
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        CHECK(write(down[1], "x", 1) == 1);
        exit(total == 1000 ? 11 : 12);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return (void *)(long)WEXITSTATUS(status);
}

static void *leaver(void *arg)
{
    (void)arg;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        pthread_exit(NULL); /* The last thread: exit(0). */
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return (void *)(long)WEXITSTATUS(status);
}

int main(void)
{
    pthread_t waiters[8], blocked;
    CHECK(pipe(down) == 0);
    for (long i = 0; i < 8; i++)
        waiters[i] = spawn(waiter, (void *)(7 - i));
    blocked = spawn(reader, NULL);
    say("the child says %ld", (long)join(spawn(forker, NULL)));
    say("and %ld", (long)join(spawn(leaver, NULL)));
    join(blocked);
    for (int i = 0; i < 8; i++)
        join(waiters[i]);
    say("total %d, turn %d", total, turn);
    return 0;
}
