/* Random sequences of calls on synchronisation objects by three threads: mutexes (normal, error-checking, recursive, adaptive, with priority inheritance), conditions,
 * read-write locks of two kinds, semaphores, a barrier and a futex; calls that block until another thread's, try, time out at once, or are wrong. The first
 * thread has one call made at a time and waits until all others have ended theirs or are blocked, so that one order is possible. Mutexes and read-write locks
 * are locked in the order of their numbers: a sequence can be unwound. Linux and Skein answer alike: results, and the thread that goes on.
 *
 * expect: same
 * sequences: 1000
 */
#include "sequence.h"
#include "settle.h"
#include <limits.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define WORKERS 3
#define MUTEXES 5
#define RWLOCKS 2
#define LOCKS (MUTEXES + RWLOCKS)
#define CONDS 2
#define SEMS 2

static const char *const mutex_names[MUTEXES] = {"normal", "checking", "recursive", "adaptive", "inheriting"};

enum op {
    LOCK,
    TRY_LOCK,
    TIMED_LOCK,
    CLOCK_LOCK,
    UNLOCK,
    READ,
    TRY_READ,
    TIMED_READ,
    WRITE,
    TRY_WRITE,
    TIMED_WRITE,
    RW_UNLOCK,
    WAIT,
    TIMED_WAIT,
    SIGNAL,
    BROADCAST,
    SEM_WAIT,
    SEM_TRY,
    SEM_TIMED,
    SEM_POST,
    BARRIER,
    FUTEX_SLEEP,
    FUTEX_ROUSE,
    DESTROY,
};
static const char *const op_names[] = {
    "lock",        "try lock",  "timed lock", "clock lock", "unlock",      "read",      "try read", "timed read",
    "write",       "try write", "timed write", "unlock",    "wait",        "timed wait", "signal",  "broadcast",
    "sem wait",    "sem try",   "sem timed",  "post",       "barrier",     "futex wait", "futex wake", "destroy",
};

static pthread_mutex_t mutexes[MUTEXES];
static pthread_rwlock_t rwlocks[RWLOCKS];
static pthread_cond_t conds[CONDS];
static sem_t sems[SEMS];
static pthread_barrier_t barrier;
static uint32_t word;
/* The mutex of each condition. */
static int mutex_of[CONDS];

static struct worker {
    sem_t go;
    atomic_int done;
    /* Its call. */
    int busy;
    enum op op;
    int object, result;
    /* How often it holds each lock; of a read-write lock to write: -1. */
    int held[LOCKS];
} workers[WORKERS];
static int statuses[WORKERS];

static int made(const struct worker *w)
{
    static const struct timespec past = {1, 0};
    int n = w->object;
    switch (w->op) {
    case LOCK:
        return pthread_mutex_lock(&mutexes[n]);
    case TRY_LOCK:
        return pthread_mutex_trylock(&mutexes[n]);
    case TIMED_LOCK:
        return pthread_mutex_timedlock(&mutexes[n], &past);
    case CLOCK_LOCK:
        return pthread_mutex_clocklock(&mutexes[n], CLOCK_MONOTONIC, &(struct timespec){0, 1});
    case UNLOCK:
        return pthread_mutex_unlock(&mutexes[n]);
    case READ:
        return pthread_rwlock_rdlock(&rwlocks[n]);
    case TRY_READ:
        return pthread_rwlock_tryrdlock(&rwlocks[n]);
    case TIMED_READ:
        return pthread_rwlock_timedrdlock(&rwlocks[n], &past);
    case WRITE:
        return pthread_rwlock_wrlock(&rwlocks[n]);
    case TRY_WRITE:
        return pthread_rwlock_trywrlock(&rwlocks[n]);
    case TIMED_WRITE:
        return pthread_rwlock_timedwrlock(&rwlocks[n], &past);
    case RW_UNLOCK:
        return pthread_rwlock_unlock(&rwlocks[n]);
    case WAIT:
        return pthread_cond_wait(&conds[n], &mutexes[mutex_of[n]]);
    case TIMED_WAIT:
        return pthread_cond_timedwait(&conds[n], &mutexes[mutex_of[n]], &(struct timespec){0, 1});
    case SIGNAL:
        return pthread_cond_signal(&conds[n]);
    case BROADCAST:
        return pthread_cond_broadcast(&conds[n]);
    case SEM_WAIT:
        return sem_wait(&sems[n]) == 0 ? 0 : errno;
    case SEM_TRY:
        return sem_trywait(&sems[n]) == 0 ? 0 : errno;
    case SEM_TIMED:
        return sem_timedwait(&sems[n], &past) == 0 ? 0 : errno;
    case SEM_POST:
        return sem_post(&sems[n]) == 0 ? 0 : errno;
    case BARRIER:
        return pthread_barrier_wait(&barrier);
    case FUTEX_SLEEP:
        return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, n, NULL, NULL, 0) == 0 ? 0 : errno;
    case FUTEX_ROUSE:
        return (int)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
    case DESTROY:
        return pthread_mutex_destroy(&mutexes[n]);
    }
    return -2;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    statuses[w - workers] = own_status();
    for (;;) {
        atomic_store(&w->done, 1);
        while (sem_wait(&w->go) != 0)
            ;
        w->result = made(w);
    }
    return NULL;
}

static const char *object_name(enum op op, int n)
{
    static char text[32];
    if (op <= UNLOCK || op == DESTROY)
        return mutex_names[n];
    snprintf(text, sizeof text, "%d", n);
    return text;
}

static void make_mutex(int n)
{
    static const int types[MUTEXES] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE,
                                       PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_NORMAL};
    pthread_mutexattr_t attr;
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_settype(&attr, types[n]) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attr, n == 4 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE) == 0);
    CHECK(pthread_mutex_init(&mutexes[n], &attr) == 0);
}

static void note_result(struct worker *w)
{
    int n = w->object;
    switch (w->op) {
    case LOCK:
    case TRY_LOCK:
    case TIMED_LOCK:
    case CLOCK_LOCK:
        w->held[n] += w->result == 0;
        break;
    case UNLOCK:
        w->held[n] -= w->result == 0;
        break;
    case READ:
    case TRY_READ:
    case TIMED_READ:
        w->held[MUTEXES + n] += w->result == 0;
        break;
    case WRITE:
    case TRY_WRITE:
    case TIMED_WRITE:
        if (w->result == 0)
            w->held[MUTEXES + n] = -1;
        break;
    case RW_UNLOCK:
        w->held[MUTEXES + n] = w->held[MUTEXES + n] < 0 ? 0 : w->held[MUTEXES + n] - 1;
        break;
    case WAIT:
        if (w->result == 0)
            w->held[mutex_of[n]] = 1;
        break;
    case DESTROY:
        if (w->result == 0)
            make_mutex(n);
        break;
    default:
        break;
    }
}

/* Whether a call ends by itself. With a time in the past Linux makes it sleep for a moment. */
static int ends_at_once(enum op op)
{
    return op != LOCK && op != READ && op != WRITE && op != WAIT && op != SEM_WAIT && op != BARRIER && op != FUTEX_SLEEP;
}

/* Tells which calls have ended. */
static void look(void)
{
    for (int i = 0; i < WORKERS; i++)
        while (workers[i].busy && ends_at_once(workers[i].op) && !atomic_load(&workers[i].done))
            sched_yield();
    settle(statuses, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        if (!w->busy || !atomic_load(&w->done))
            continue;
        w->busy = 0;
        note_result(w);
        say("  %d: %s %s: %s", i, op_names[w->op], object_name(w->op, w->object),
            w->result > 0 && w->op != FUTEX_ROUSE ? strerrorname_np(w->result) : w->result == 0 ? "0" : w->result > 0 ? "some" : "-1");
    }
}

static void give(struct worker *w, enum op op, int object)
{
    say("%d worker %d: %s %s", sequence_call, (int)(w - workers), op_names[op], object_name(op, object));
    CHECK(!w->busy);
    w->op = op;
    w->object = object;
    w->busy = 1;
    atomic_store(&w->done, 0);
    CHECK(sem_post(&w->go) == 0);
    look();
}

static int waiting(enum op op, int object)
{
    int n = 0;
    for (int i = 0; i < WORKERS; i++)
        n += workers[i].busy && workers[i].op == op && workers[i].object == object;
    return n;
}

/* Threads that wait for a mutex, also at the end of a wait for a condition. */
static int wanted(int mutex)
{
    int n = waiting(LOCK, mutex);
    for (int i = 0; i < CONDS; i++)
        if (mutex_of[i] == mutex)
            n += waiting(WAIT, i);
    return n;
}

/* Whether a thread holds no lock from number `n` on. */
static int may_block(const struct worker *w, int n)
{
    for (int i = n; i < LOCKS; i++)
        if (w->held[i] != 0)
            return 0;
    return 1;
}

static int holds_only(const struct worker *w, int mutex)
{
    for (int i = 0; i < LOCKS; i++)
        if (w->held[i] != (i == mutex))
            return 0;
    return 1;
}

static void use_mutex(struct worker *w)
{
    int n = (int)below(MUTEXES), checks = n == 1 || n == 2;
    switch (below(9)) {
    case 0:
    case 1:
    case 2:
        if (may_block(w, n) || (w->held[n] > 0 && checks))
            give(w, LOCK, n);
        break;
    case 3:
        give(w, TRY_LOCK, n);
        break;
    case 4:
        /* Linux finds the deadlock of one that inherits and is held, at any time. */
        give(w, below(2) ? TIMED_LOCK : CLOCK_LOCK, n == 4 && w->held[n] ? 0 : n);
        break;
    case 5:
        if (below(4) == 0)
            give(w, DESTROY, n);
        break;
    default:
        if (w->held[n] > 0 || checks)
            give(w, UNLOCK, n);
        break;
    }
}

static void use_rwlock(struct worker *w)
{
    int n = (int)below(RWLOCKS), held = w->held[MUTEXES + n];
    switch (below(9)) {
    case 0:
    case 1:
        if (may_block(w, MUTEXES + n))
            give(w, READ, n);
        break;
    case 2:
        if (may_block(w, MUTEXES + n))
            give(w, WRITE, n);
        break;
    case 3:
        give(w, TRY_READ, n);
        break;
    case 4:
        give(w, TRY_WRITE, n);
        break;
    case 5:
        give(w, below(2) ? TIMED_READ : TIMED_WRITE, n);
        break;
    default:
        if (held != 0)
            give(w, RW_UNLOCK, n);
        break;
    }
}

static void use_condition(struct worker *w)
{
    int n = (int)below(CONDS), mutex = mutex_of[n];
    int is_free = wanted(mutex) == 0;
    for (int i = 0; i < WORKERS; i++)
        is_free &= workers[i].held[mutex] == 0;
    switch (below(6)) {
    case 0:
    case 1:
        if (may_block(w, 0) && is_free)
            give(w, LOCK, mutex);
        if (!w->busy && holds_only(w, mutex))
            give(w, WAIT, n);
        break;
    case 2:
        /* Nobody takes the mutex meanwhile. */
        if (w->held[mutex] == 1 && wanted(mutex) == 0)
            give(w, TIMED_WAIT, n);
        break;
    case 3:
        if (waiting(WAIT, n) <= 1)
            give(w, BROADCAST, n);
        break;
    default:
        give(w, SIGNAL, n);
        break;
    }
}

static void use_others(struct worker *w)
{
    int n = (int)below(SEMS);
    switch (below(10)) {
    case 0:
    case 1:
        give(w, SEM_WAIT, n);
        break;
    case 2:
        give(w, below(2) ? SEM_TRY : SEM_TIMED, n);
        break;
    case 3:
    case 4:
    case 5:
        give(w, SEM_POST, n);
        break;
    case 6:
        give(w, BARRIER, 0);
        break;
    case 7:
    case 8:
        give(w, FUTEX_SLEEP, (int)below(2));
        break;
    default:
        give(w, FUTEX_ROUSE, 1 + (int)below(3));
        break;
    }
}

static void act(void)
{
    struct worker *w = &workers[below(WORKERS)];
    int value;
    if (w->busy) {
        w = &workers[below(WORKERS)];
        if (w->busy)
            return;
    }
    switch (below(10)) {
    case 0:
    case 1:
    case 2:
    case 3:
        use_mutex(w);
        break;
    case 4:
    case 5:
        use_condition(w);
        break;
    case 6:
    case 7:
        use_rwlock(w);
        break;
    case 8:
        CHECK(sem_getvalue(&sems[0], &value) == 0);
        say("%d semaphore 0: %d", sequence_call, value);
        break;
    default:
        use_others(w);
        break;
    }
}

static void begin(void)
{
    pthread_rwlockattr_t rwattr;
    for (int i = 0; i < MUTEXES; i++)
        make_mutex(i);
    CHECK(pthread_rwlockattr_init(&rwattr) == 0);
    CHECK(pthread_rwlock_init(&rwlocks[0], &rwattr) == 0);
    CHECK(pthread_rwlockattr_setkind_np(&rwattr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
    CHECK(pthread_rwlock_init(&rwlocks[1], &rwattr) == 0);
    for (int i = 0; i < CONDS; i++) {
        pthread_condattr_t condattr;
        CHECK(pthread_condattr_init(&condattr) == 0);
        CHECK(pthread_condattr_setclock(&condattr, i ? CLOCK_MONOTONIC : CLOCK_REALTIME) == 0);
        CHECK(pthread_cond_init(&conds[i], &condattr) == 0);
        mutex_of[i] = (int)below(MUTEXES);
    }
    for (int i = 0; i < SEMS; i++)
        CHECK(sem_init(&sems[i], 0, below(2)) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
}

static int is_unwound(void)
{
    for (int i = 0; i < WORKERS; i++)
        if (workers[i].busy || !may_block(&workers[i], 0))
            return 0;
    return 1;
}

/* Ends all calls and unlocks all locks. */
static void end(void)
{
    for (int round = 0; !is_unwound(); round++) {
        CHECK(round < 100);
        for (int i = 0; i < WORKERS; i++) {
            struct worker *w = &workers[i];
            int lock = LOCKS - 1;
            while (lock >= 0 && w->held[lock] == 0)
                lock--;
            if (!w->busy && lock >= 0)
                give(w, lock < MUTEXES ? UNLOCK : RW_UNLOCK, lock < MUTEXES ? lock : lock - MUTEXES);
            if (!w->busy)
                continue;
            if (w->op == WAIT)
                CHECK(pthread_cond_signal(&conds[w->object]) == 0);
            else if (w->op == SEM_WAIT)
                CHECK(sem_post(&sems[w->object]) == 0);
            else if (w->op == BARRIER)
                pthread_barrier_wait(&barrier);
            else if (w->op == FUTEX_SLEEP)
                CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) <= 1);
            look();
        }
    }
    for (int i = 0; i < MUTEXES; i++)
        CHECK(pthread_mutex_destroy(&mutexes[i]) == 0);
    for (int i = 0; i < CONDS; i++)
        CHECK(pthread_cond_destroy(&conds[i]) == 0);
    for (int i = 0; i < RWLOCKS; i++)
        CHECK(pthread_rwlock_destroy(&rwlocks[i]) == 0);
    for (int i = 0; i < SEMS; i++)
        CHECK(sem_destroy(&sems[i]) == 0);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

int main(int argc, char **argv)
{
    settle_begin();
    for (int i = 0; i < WORKERS; i++) {
        pthread_t thread;
        CHECK(sem_init(&workers[i].go, 0, 0) == 0);
        CHECK(pthread_create(&thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++)
        while (!atomic_load(&workers[i].done))
            sched_yield();
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .begin = begin, .act = act, .end = end});
}
