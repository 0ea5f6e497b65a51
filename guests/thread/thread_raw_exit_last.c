/* Which thread ends last by the system call exit, and the process's exit code; each case is a child.
 *
 * expect: same
 */
#include "raw.h"
#include <linux/futex.h>
#include <sys/time.h>
#include <sys/wait.h>

static const char *now;
static int tid_word = 1;

/* Like any code of the server: on a large stack, with blocking calls and calls around libc. */
static void at_end(void)
{
    char many[400000];
    memset(many, 1, sizeof many);
    __asm__ volatile("" : : "r"(many) : "memory");
    sleep_ms(1);
    CHECK(raw3(SYS_getpid, 0, 0, 0) == getpid() && raw3(SYS_sched_yield, 0, 0, 0) == 0);
    say("%s: atexit", now);
    fflush(stdout);
}

static void leave(int code)
{
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(code) : "rcx", "r11", "memory");
    CHECK(!"ended");
}

static void *leave_with_5(void *arg)
{
    if (arg)
        sleep_ms(10);
    leave(5);
    return NULL;
}

static void *leave_with_0(void *arg)
{
    (void)arg;
    sleep_ms(10);
    leave(0);
    return NULL;
}

static void *return_later(void *arg)
{
    (void)arg;
    sleep_ms(10);
    return NULL;
}

static void *join_main(void *main)
{
    void *value = &tid_word;
    CHECK(pthread_join(*(pthread_t *)main, &value) == 0 && value == NULL);
    leave(5);
    return NULL;
}

static void *wait_for_word(void *arg)
{
    (void)arg;
    while (__atomic_load_n(&tid_word, __ATOMIC_SEQ_CST) != 0)
        raw6(SYS_futex, (long)&tid_word, FUTEX_WAIT, 1, 0, 0, 0);
    say("%s: the word is zero", now);
    exit(6);
}

static void alone(void)
{
    leave(3);
}

static void by_function(void)
{
    syscall(SYS_exit, 4);
}

/* Since Linux 5.18 the code of a process is that of its last thread. */
static void main_first(void)
{
    spawn(leave_with_5, &tid_word);
    leave(3);
}

static void main_last(void)
{
    spawn(leave_with_5, NULL);
    sleep_ms(20);
    leave(3);
}

/* libc counts its threads: after an end that it has not seen, it does not notice the last thread. */
static void last_returns(void)
{
    spawn(return_later, NULL);
    leave(3);
}

static void last_leaves(void)
{
    spawn(leave_with_5, &tid_word);
    pthread_exit(NULL);
}

static void all_return(void)
{
    spawn(return_later, NULL);
    pthread_exit(NULL);
}

static void exits_elsewhere(void)
{
    spawn(leave_with_5, NULL);
    sleep_ms(20);
    exit(9);
}

static void main_joined(void)
{
    static pthread_t self;
    self = pthread_self();
    spawn(join_main, &self);
    leave(3);
}

static void tid_address(void)
{
    CHECK(raw3(SYS_set_tid_address, (long)&tid_word, 0, 0) == getpid());
    spawn(wait_for_word, NULL);
    sleep_ms(10);
    leave(3);
}

static void *wait_for_ever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

/* A signal to the process reaches the remaining threads. */
static void killed_afterwards(void)
{
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    spawn(wait_for_ever, NULL);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    leave(3);
}

static void *fork_and_return(void *arg)
{
    pid_t *child = arg;
    *child = fork();
    CHECK(*child >= 0);
    return NULL; /* In the child it is the only thread. */
}

static void *fork_and_leave(void *arg)
{
    pid_t *child = arg;
    *child = fork();
    CHECK(*child >= 0);
    if (*child == 0)
        leave(8);
    return NULL;
}

static void ended(const char *name, pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status))
        say("%s: code %d", name, WEXITSTATUS(status));
    else
        say("%s: signal %d", name, WTERMSIG(status));
    fflush(stdout);
}

static void in_child(const char *name, void (*body)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        now = name;
        body();
        CHECK(!"ended");
    }
    ended(name, pid);
}

int main(void)
{
    CHECK(atexit(at_end) == 0);
    in_child("alone", alone);
    in_child("by syscall()", by_function);
    in_child("main first", main_first);
    in_child("main last", main_last);
    in_child("last returns", last_returns);
    in_child("last leaves", last_leaves);
    in_child("all return", all_return);
    in_child("exits elsewhere", exits_elsewhere);
    in_child("main joined", main_joined);
    in_child("tid address", tid_address);
    in_child("killed afterwards", killed_afterwards);

    static pid_t child;
    now = "forked by a thread that returns";
    fflush(stdout);
    join(spawn(fork_and_return, &child));
    ended(now, child);
    now = "forked by a thread, leaves";
    fflush(stdout);
    join(spawn(fork_and_leave, &child));
    ended(now, child);

    /* The first process: its main thread leaves, another one ends it. */
    now = "first";
    fflush(stdout);
    spawn(leave_with_0, NULL);
    leave(3);
}
