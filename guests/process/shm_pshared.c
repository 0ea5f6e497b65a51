/* Process-shared mutex, condition, barrier, semaphore, rwlock and a spin lock with sched_yield, between four workers and their parent; the memory lies
 * elsewhere in some of them.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { WORKERS = 4, ROUNDS = 100 };

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_barrier_t barrier;
    pthread_rwlock_t rwlock;
    sem_t semaphore;
    atomic_int spin;
    int counter, turn, spun, written;
    unsigned order;
};

static void work(struct shared *s, int number)
{
    pthread_barrier_wait(&s->barrier);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&s->mutex) == 0);
        s->counter++;
        s->order = s->order * 31 + (unsigned)number;
        CHECK(pthread_mutex_unlock(&s->mutex) == 0);
        while (atomic_exchange(&s->spin, 1))
            sched_yield();
        s->spun++;
        if (i % 3 == 0)
            sched_yield();
        atomic_store(&s->spin, 0);
        CHECK(pthread_rwlock_wrlock(&s->rwlock) == 0);
        s->written++;
        CHECK(pthread_rwlock_unlock(&s->rwlock) == 0);
    }
    CHECK(pthread_mutex_lock(&s->mutex) == 0);
    while (s->turn != number)
        CHECK(pthread_cond_wait(&s->cond, &s->mutex) == 0);
    say("worker %d", number);
    fflush(stdout);
    s->turn++;
    CHECK(pthread_cond_broadcast(&s->cond) == 0);
    CHECK(pthread_mutex_unlock(&s->mutex) == 0);
    CHECK(sem_post(&s->semaphore) == 0);
    pthread_barrier_wait(&s->barrier);
    fflush(stdout);
    _exit(0);
}

int main(void)
{
    int status, fd = memfd_create("shared", 0);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    CHECK(s != MAP_FAILED);
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_barrierattr_t barrier;
    pthread_rwlockattr_t rwlock;
    CHECK(pthread_mutexattr_init(&mutex) == 0 && pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_condattr_init(&cond) == 0 && pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_barrierattr_init(&barrier) == 0 && pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_rwlockattr_init(&rwlock) == 0 && pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(&s->mutex, &mutex) == 0 && pthread_cond_init(&s->cond, &cond) == 0);
    CHECK(pthread_barrier_init(&s->barrier, &barrier, WORKERS + 1) == 0 && pthread_rwlock_init(&s->rwlock, &rwlock) == 0);
    CHECK(sem_init(&s->semaphore, 1, 0) == 0);
    for (int i = 0; i < WORKERS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            if (i % 2) {
                /* Elsewhere: the whole file, and the old place is gone. */
                char *whole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                CHECK(whole != MAP_FAILED && munmap(s, sizeof *s) == 0);
                s = (struct shared *)(whole + 4096);
            }
            work(s, i);
        }
    }
    pthread_barrier_wait(&s->barrier);
    for (int i = 0; i < WORKERS; i++)
        CHECK(sem_wait(&s->semaphore) == 0);
    pthread_barrier_wait(&s->barrier);
    for (int i = 0; i < WORKERS; i++)
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    note("order %u", s->order);
    say("%d counted, %d spun, %d written", s->counter, s->spun, s->written);
    return 0;
}
