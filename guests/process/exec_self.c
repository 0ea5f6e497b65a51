/* A child executes this program again: arguments, environment, inherited pipes, closed ones, threads that vanish, pid and parent stay.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>
#include <sys/auxv.h>
#include <time.h>

extern char **environ;

static int again(int in, int out, int gone, pid_t pid, pid_t parent)
{
    char line[64];
    struct timespec now, later;
    CHECK(getpid() == pid && getppid() == parent && gettid() == pid);
    CHECK(fcntl(gone, F_GETFD) == -1 && errno == EBADF);
    CHECK(fcntl(in, F_GETFD) == 0 && fcntl(out, F_GETFD) == 0);
    CHECK(getenv("LD_PRELOAD") == NULL);
    say("SEEN=%s", getenv("SEEN"));
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "LD_", 3) == 0)
            say("leak: %s", *e);
    expect_text(in, "hello");
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    sleep_ms(20);
    CHECK(clock_gettime(CLOCK_REALTIME, &later) == 0);
    CHECK(later.tv_sec * 1000000000LL + later.tv_nsec - now.tv_sec * 1000000000LL - now.tv_nsec >= 20000000);
    note("time %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    unsigned char *random = (unsigned char *)getauxval(AT_RANDOM);
    note("random %02x%02x%02x%02x", random[0], random[1], random[2], random[3]);
    snprintf(line, sizeof line, "bye");
    write_all(out, line, 3);
    int second = open("/dev/null", O_RDONLY);
    CHECK(second == gone); /* The number is free again. */
    return 17;
}

static void *never(void *arg)
{
    char byte;
    CHECK(read(*(int *)arg, &byte, 1) == 1);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "again") == 0)
        return again(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
    int down[2], up[2], status, silent[2];
    CHECK(pipe(down) == 0 && pipe(up) == 0 && pipe2(silent, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char numbers[5][16];
        int values[5] = {down[0], up[1], silent[0], getpid(), getppid()};
        for (int i = 0; i < 5; i++)
            snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
        char *env[] = {"SEEN=yes", "PATH=/bin", NULL};
        char *args[] = {argv[0], "again", numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], NULL};
        spawn(never, &silent[0]);
        spawn(never, &silent[0]);
        sched_yield();
        CHECK(execve("/nowhere/at/all", args, env) == -1 && errno == ENOENT);
        CHECK(execve("/", args, env) == -1 && errno == EACCES);
        execve("/proc/self/exe", args, env);
        CHECK(!"executed");
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    CHECK(write(down[1], "hello", 5) == 5);
    expect_text(up[0], "bye");
    CHECK(waitpid(pid, &status, 0) == pid);
    say("exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
    char byte;
    CHECK(read(up[0], &byte, 1) == 0);
    return 0;
}
