/* Threads that end themselves by the system call exit, around libc: joined, detached, with a robust mutex, by syscall(), in a destructor.
 *
 * expect: same
 */
#include "raw.h"
#include <sys/wait.h>

static int cleaned;
static pthread_mutex_t robust;
static pthread_key_t key;

static void destroy(void *value)
{
    (void)value;
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}

static void leaves_in_it(void *value)
{
    if (value == (void *)2)
        raw3(SYS_exit, 0, 0, 0);
    destroy(value);
}

/* The same by an instruction of its own: no code of libc runs, and no destructor. */
static void *inline_exit(void *arg)
{
    CHECK(pthread_setspecific(key, &cleaned) == 0);
    if (arg)
        sleep_ms(5);
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(7) : "rcx", "r11", "memory");
    CHECK(!"ended");
    return NULL;
}

static void *by_function(void *arg)
{
    (void)arg;
    syscall(SYS_exit, 0);
    CHECK(!"ended");
    return NULL;
}

static void *holding(void *arg)
{
    CHECK(pthread_mutex_lock(&robust) == 0);
    return inline_exit(arg);
}

static void *in_destructor(void *arg)
{
    pthread_key_t *other = arg;
    CHECK(pthread_setspecific(*other, (void *)2) == 0);
    return NULL;
}

static void *returns(void *arg)
{
    return arg;
}

static void on_signal(int signo)
{
    (void)signo;
    raw3(SYS_exit, 0, 0, 0);
}

static void *asleep(void *arg)
{
    char byte;
    CHECK(read(*(int *)arg, &byte, 1) == 1);
    return NULL;
}

int main(void)
{
    pthread_key_t other;
    pthread_mutexattr_t attr;
    pthread_attr_t detached;
    int ends[2];
    CHECK(pthread_key_create(&key, destroy) == 0 && pthread_key_create(&other, leaves_in_it) == 0);
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(&robust, &attr) == 0);

    /* Already ended when it is joined, and still running. */
    pthread_t first = spawn(inline_exit, NULL);
    sleep_ms(20);
    CHECK(join(first) == NULL);
    CHECK(join(spawn(inline_exit, &cleaned)) == NULL);
    say("joined; destructors run: %d", cleaned);

    join(spawn(by_function, NULL));
    say("joined after syscall(SYS_exit)");

    join(spawn(holding, NULL));
    CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&robust) == 0 && pthread_mutex_unlock(&robust) == 0);
    /* A thread that waits for it already. */
    pthread_t holder = spawn(holding, &cleaned);
    sched_yield();
    int rc = pthread_mutex_lock(&robust);
    if (rc == 0) { /* Before it, natively. */
        CHECK(pthread_mutex_unlock(&robust) == 0);
        sleep_ms(30);
        rc = pthread_mutex_lock(&robust);
    }
    CHECK(rc == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&robust) == 0 && pthread_mutex_unlock(&robust) == 0);
    join(holder);
    say("what it held is inconsistent");

    join(spawn(in_destructor, &other));
    say("joined after one that left in a destructor; destructors run: %d", cleaned);

    /* From a handler that interrupts a read. */
    CHECK(pipe(ends) == 0 && signal(SIGUSR1, on_signal) != SIG_ERR);
    pthread_t reader = spawn(asleep, &ends[0]);
    sleep_ms(20);
    CHECK(pthread_kill(reader, SIGUSR1) == 0);
    join(reader);
    CHECK(write(ends[1], "x", 1) == 1);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    say("joined after one that left in a handler");

    /* Many: their place in the program is replaced meanwhile, and their stacks are used again. */
    CHECK(pthread_attr_init(&detached) == 0);
    for (int i = 0; i < 150; i++) {
        pthread_t ended = spawn(inline_exit, NULL);
        CHECK(join(spawn(returns, &attr)) == &attr);
        CHECK(pthread_join(ended, NULL) == 0);
    }
    CHECK(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    for (int i = 0; i < 10; i++) {
        pthread_t ended;
        CHECK(pthread_create(&ended, &detached, i % 2 ? inline_exit : by_function, NULL) == 0);
    }
    sleep_ms(20);
    say("destructors run: %d", cleaned);
    return 0;
}
