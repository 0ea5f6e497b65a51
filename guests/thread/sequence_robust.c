/* Random sequences of calls on robust mutexes (normal, error-checking, recursive, adaptive, two with priority inheritance; some for processes) by three threads, which
 * end while they hold some, and by children: an owner that died, a state that is made consistent or not, a mutex that cannot be recovered, one that is
 * waited for or given up for a condition meanwhile. As in sequence_locks, one call is made at a time, and mutexes are locked in the order of their numbers. Linux
 * and Skein answer alike: results, and the thread that goes on.
 *
 * expect: same
 * sequences: 500
 */
#include "sequence.h"
#include "settle.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define WORKERS 3
#define MUTEXES 6
/* The condition's. */
#define OF_CONDITION 0

enum op { LOCK, TRY_LOCK, TIMED_LOCK, UNLOCK, CONSISTENT, WAIT, TIMED_WAIT, SIGNAL, EXIT };
static const char *const op_names[] = {"lock", "try lock",   "timed lock", "unlock", "make consistent",
                                       "wait", "timed wait", "signal",     "exit"};

static const struct {
    const char *name;
    int type, protocol, shared;
} kinds[MUTEXES] = {
    {"normal", PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0},
    {"checking", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE, 1},
    {"recursive", PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, 1},
    {"adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_PRIO_NONE, 1},
    {"inheriting", PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, 1},
    {"inheriting recursive", PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_INHERIT, 0},
};

/* Memory that children share. */
static pthread_mutex_t *mutexes;
static pthread_cond_t cond;

static struct worker {
    pthread_t thread;
    sem_t go;
    atomic_int done;
    /* Its call. */
    int busy;
    enum op op;
    int object, result;
    /* How often it holds each mutex. */
    int held[MUTEXES];
} workers[WORKERS];
static int statuses[WORKERS];
/* A mutex whose last owner died, and which was not made consistent; one that was unlocked so. */
static int inconsistent[MUTEXES], lost[MUTEXES];

static int is_recursive(int n)
{
    return kinds[n].type == PTHREAD_MUTEX_RECURSIVE;
}

static int made(const struct worker *w)
{
    static const struct timespec past = {1, 0};
    pthread_mutex_t *mutex = &mutexes[w->object];
    switch (w->op) {
    case LOCK:
        return pthread_mutex_lock(mutex);
    case TRY_LOCK:
        return pthread_mutex_trylock(mutex);
    case TIMED_LOCK:
        return pthread_mutex_timedlock(mutex, &past);
    case UNLOCK:
        return pthread_mutex_unlock(mutex);
    case CONSISTENT:
        return pthread_mutex_consistent(mutex);
    case WAIT:
        return pthread_cond_wait(&cond, mutex);
    case TIMED_WAIT:
        return pthread_cond_timedwait(&cond, mutex, &past);
    case SIGNAL:
        return pthread_cond_signal(&cond);
    case EXIT:
        break;
    }
    pthread_exit(NULL);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    int *status = &statuses[w - workers];
    *status = own_status();
    for (;;) {
        atomic_store(&w->done, 1);
        while (sem_wait(&w->go) != 0)
            ;
        w->result = made(w);
    }
    return NULL;
}

static void start(struct worker *w)
{
    atomic_store(&w->done, 0);
    w->thread = spawn(work, w);
    while (!atomic_load(&w->done))
        sched_yield();
}

static const char *result_name(int result)
{
    return result == 0 ? "0" : strerrorname_np(result);
}

/* A mutex is unlocked. */
static void give_up(int n)
{
    lost[n] |= inconsistent[n];
    inconsistent[n] = 0;
}

static void note_result(struct worker *w)
{
    int n = w->object, *held = &w->held[n];
    int has = w->result == 0 || w->result == EOWNERDEAD;
    if (w->result == EOWNERDEAD)
        inconsistent[n] = 1;
    switch (w->op) {
    case LOCK:
    case TRY_LOCK:
    case TIMED_LOCK:
        *held += has;
        break;
    case UNLOCK:
        if (w->result != EPERM)
            *held -= 1;
        if (w->result == 0 && *held == 0)
            give_up(n);
        break;
    case CONSISTENT:
        if (w->result == 0)
            inconsistent[n] = 0;
        break;
    case WAIT:
        *held = has;
        break;
    case TIMED_WAIT:
        *held = has || w->result == ETIMEDOUT;
        break;
    default:
        break;
    }
}

/* Tells which calls have ended. */
static void look(void)
{
    for (int i = 0; i < WORKERS; i++)
        while (workers[i].busy && workers[i].op != LOCK && workers[i].op != WAIT && !atomic_load(&workers[i].done))
            sched_yield();
    settle(statuses, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        if (!w->busy || !atomic_load(&w->done))
            continue;
        w->busy = 0;
        note_result(w);
        say("  %d: %s %s: %s", i, op_names[w->op], kinds[w->object].name, result_name(w->result));
    }
}

static void give(struct worker *w, enum op op, int object)
{
    say("%d worker %d: %s %s", sequence_call, (int)(w - workers), op_names[op], kinds[object].name);
    CHECK(!w->busy);
    w->op = op;
    w->object = object;
    if (op == EXIT) {
        CHECK(sem_post(&w->go) == 0);
        join(w->thread);
        if (!is_skein)
            CHECK(close(statuses[w - workers]) == 0);
        for (int i = 0; i < MUTEXES; i++)
            inconsistent[i] &= w->held[i] == 0;
        memset(w->held, 0, sizeof w->held);
        start(w);
    } else {
        if (op == WAIT || op == TIMED_WAIT)
            give_up(object);
        w->busy = 1;
        atomic_store(&w->done, 0);
        CHECK(sem_post(&w->go) == 0);
    }
    look();
}

/* Threads that wait for a mutex or have it, also those at the condition. */
static int wanted(int mutex)
{
    int n = 0;
    for (int i = 0; i < WORKERS; i++)
        n += workers[i].held[mutex] > 0 ||
             (workers[i].busy && workers[i].object == mutex && (workers[i].op == LOCK || workers[i].op == WAIT));
    return n;
}

/* glibc wakes only one of those that wait for a mutex that is lost (docs/limitations.md). */
static int may_unlock(int n)
{
    int waiting = 0;
    for (int i = 0; i < WORKERS; i++)
        waiting += workers[i].busy && workers[i].object == n && (workers[i].op == LOCK || workers[i].op == WAIT);
    return !inconsistent[n] || waiting < 2;
}

/* Whether a thread holds no mutex from number `n` on. */
static int may_block(const struct worker *w, int n)
{
    for (int i = n; i < MUTEXES; i++)
        if (w->held[i] != 0)
            return 0;
    return 1;
}

/* glibc leaves one that is lost locked (docs/limitations.md). */
static int may_try(int n)
{
    return !lost[n] || kinds[n].protocol != PTHREAD_PRIO_NONE;
}

static void use_mutex(struct worker *w)
{
    int n = (int)below(MUTEXES);
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        if (may_block(w, n) || (w->held[n] > 0 && (is_recursive(n) || kinds[n].type == PTHREAD_MUTEX_ERRORCHECK)))
            give(w, LOCK, n);
        break;
    case 4:
        if (may_try(n))
            give(w, TRY_LOCK, n);
        break;
    case 5:
        /* Linux finds the deadlock of one that inherits and is held, at any time. */
        if (kinds[n].protocol == PTHREAD_PRIO_NONE || w->held[n] == 0)
            give(w, TIMED_LOCK, n);
        break;
    case 6:
    case 7:
        /* Another thread's is not to be touched. */
        if (w->held[n] > 0)
            give(w, CONSISTENT, n);
        break;
    default:
        if (may_unlock(n))
            give(w, UNLOCK, n);
        break;
    }
}

static void use_condition(struct worker *w)
{
    switch (below(4)) {
    case 0:
    case 1:
        if (w->held[OF_CONDITION] == 1 && may_block(w, OF_CONDITION + 1) && may_unlock(OF_CONDITION))
            give(w, WAIT, OF_CONDITION);
        break;
    case 2:
        if (w->held[OF_CONDITION] == 1 && wanted(OF_CONDITION) == 1)
            give(w, TIMED_WAIT, OF_CONDITION);
        break;
    default:
        give(w, SIGNAL, OF_CONDITION);
        break;
    }
}

/* A child takes a mutex, if it can, and ends. */
static void take_in_child(void)
{
    int n = (int)below(MUTEXES), status, is_made_consistent = below(3) == 0;
    if (!kinds[n].shared || !may_try(n))
        return;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int result = pthread_mutex_trylock(&mutexes[n]);
        if (result == EOWNERDEAD && is_made_consistent)
            CHECK(pthread_mutex_consistent(&mutexes[n]) == 0);
        _exit(result);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    say("%d child: try lock %s: %s", sequence_call, kinds[n].name, result_name(WEXITSTATUS(status)));
    look();
}

static void make_mutex(int n)
{
    pthread_mutexattr_t attr;
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_settype(&attr, kinds[n].type) == 0);
    CHECK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attr, kinds[n].protocol) == 0);
    CHECK(pthread_mutexattr_setpshared(&attr, kinds[n].shared) == 0);
    CHECK(pthread_mutex_init(&mutexes[n], &attr) == 0);
    inconsistent[n] = lost[n] = 0;
}

/* A mutex that nobody has or waits for is made new: most of them would soon be lost for good. */
static void renew(void)
{
    int n = (int)below(MUTEXES);
    if (wanted(n) > 0)
        return;
    say("%d destroy %s: %s", sequence_call, kinds[n].name, result_name(pthread_mutex_destroy(&mutexes[n])));
    make_mutex(n);
}

static void act(void)
{
    struct worker *w = &workers[below(WORKERS)];
    switch (below(24)) {
    case 0:
        take_in_child();
        return;
    case 1:
        renew();
        return;
    default:
        break;
    }
    if (w->busy)
        w = &workers[below(WORKERS)];
    if (w->busy)
        return;
    switch (below(10)) {
    case 0:
        give(w, EXIT, 0);
        break;
    case 1:
    case 2:
        use_condition(w);
        break;
    default:
        use_mutex(w);
        break;
    }
}

static void begin(void)
{
    for (int i = 0; i < MUTEXES; i++)
        make_mutex(i);
    CHECK(pthread_cond_init(&cond, NULL) == 0);
}

static int is_unwound(void)
{
    for (int i = 0; i < WORKERS; i++)
        if (workers[i].busy || !may_block(&workers[i], 0))
            return 0;
    return 1;
}

/* Ends all calls and unlocks all mutexes. */
static void end(void)
{
    for (int round = 0; !is_unwound(); round++) {
        CHECK(round < 100);
        for (int i = 0; i < WORKERS; i++) {
            struct worker *w = &workers[i];
            int lock = MUTEXES - 1;
            while (lock >= 0 && w->held[lock] == 0)
                lock--;
            if (w->busy && w->op == WAIT) {
                CHECK(pthread_cond_signal(&cond) == 0);
                look();
            } else if (!w->busy && lock >= 0) {
                give(w, may_unlock(lock) ? UNLOCK : CONSISTENT, lock);
            }
        }
    }
    for (int i = 0; i < MUTEXES; i++)
        CHECK(pthread_mutex_destroy(&mutexes[i]) == 0);
    CHECK(pthread_cond_destroy(&cond) == 0);
}

int main(int argc, char **argv)
{
    mutexes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(mutexes != MAP_FAILED);
    settle_begin();
    for (int i = 0; i < WORKERS; i++) {
        CHECK(sem_init(&workers[i].go, 0, 0) == 0);
        start(&workers[i]);
    }
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .begin = begin, .act = act, .end = end});
}
