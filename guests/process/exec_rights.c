/* A program that another user's process has executed: whether its memory may be dumped, and so whose its files in /proc are, follows its users; limits below what it has by then hold
 * for what comes. Also in a replica that continues from an image.
 *
 * expect: same
 */
#include "guest.h"
#include <alloca.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { STEPS = 6, THREADS = 3, DEEP = 2 << 20, ANOTHER = 33 };

static sem_t may_end;

static void *waits(void *arg)
{
    CHECK(sem_wait(&may_end) == 0);
    return arg;
}

/* Makes the stack long once. */
static __attribute__((noinline)) void go_deep(void)
{
    volatile char *deep = alloca(DEEP);
    for (int at = 0; at < DEEP; at += 4096)
        deep[at] = 1;
}

static int can_read(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void look(const char *who)
{
    struct rlimit stack, processes;
    CHECK(getrlimit(RLIMIT_STACK, &stack) == 0 && getrlimit(RLIMIT_NPROC, &processes) == 0);
    note("%s: user %d, dumpable %d, environment %d, stack %ld, processes %ld", who, geteuid(), prctl(PR_GET_DUMPABLE),
         can_read("/proc/self/environ"), (long)stack.rlim_cur, (long)processes.rlim_cur);
}

static void executed(void)
{
    pthread_t threads[THREADS];
    struct rlimit stack, few = {.rlim_cur = 1, .rlim_max = 1};
    CHECK(sem_init(&may_end, 0, 0) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], NULL, waits, NULL) == 0);
    go_deep();
    CHECK(getrlimit(RLIMIT_STACK, &stack) == 0);
    stack.rlim_cur = stack.rlim_max = DEEP / 2;
    CHECK(setrlimit(RLIMIT_STACK, &stack) == 0 && setrlimit(RLIMIT_NPROC, &few) == 0);
    CHECK(prctl(PR_GET_DUMPABLE) == 1 && can_read("/proc/self/environ"));
    for (int step = 0; step < STEPS; step++) {
        look("executed");
        sleep_ms(5);
    }
    for (int n = 0; n < THREADS; n++)
        CHECK(sem_post(&may_end) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    say("the program ends");
}

static void end_of(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        executed();
        return 0;
    }
    int is_root = geteuid() == 0;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *args[] = {argv[0], "executed", NULL};
        CHECK(!is_root || (setresgid(ANOTHER, ANOTHER, ANOTHER) == 0 && setresuid(ANOTHER, ANOTHER, ANOTHER) == 0));
        execv("/proc/self/exe", args);
        CHECK(!"executed");
    }
    end_of(pid);
    /* It has the rights of another user for a moment, and then not those that go with its memory. */
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(!is_root || (seteuid(ANOTHER) == 0 && seteuid(0) == 0));
        for (int step = 0; step < STEPS; step++) {
            look("forked");
            sleep_ms(5);
        }
        _exit(0);
    }
    end_of(pid);
    say("ended");
}
