/* Births by libc's own places: threads, forks from either thread, spawned programs, and programs that do not exist. Natively and replaced they are the same.
 * 60 threads, 120 forks, 60 programs, 60 missing ones, 60 shells; programs begin with nothing replaced.
 *
 * expect: same
 * net: 17 of libc, 1800 executions, 120 programs
 */
#include "patch.h"
#include <spawn.h>
#include <sys/wait.h>

#define BIRTHS 60

extern char **environ;
static int word;

static void ends_with(pid_t child, int wanted)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

/* The child's memory is its own, and below its stack pointer nothing of its parent's is lost. */
static void forked(int n)
{
    volatile char many[256];
    memset((char *)many, n, sizeof many);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        memset((char *)many, 0, sizeof many);
        word += n;
        _exit(word & 0x7f);
    }
    ends_with(child, (word + n) & 0x7f);
    for (size_t i = 0; i < sizeof many; i++)
        CHECK(many[i] == (char)n);
}

static void *forks(void *arg)
{
    for (int i = 0; i < BIRTHS; i++)
        forked(i);
    return arg;
}

static void *body(void *arg)
{
    return (char *)arg + 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        /* The first allocation takes random bytes, and a directory's listing more calls of libc's own. */
        char *memory = malloc(argc * 100), path[4096];
        CHECK(memory != NULL && realpath("/usr/lib", path) != NULL);
        free(memory);
        return atoi(argv[1]);
    }
    for (int i = 0; i < BIRTHS; i++)
        CHECK(join(spawn(body, &word)) == (char *)&word + 1);
    forks(NULL);
    CHECK(join(spawn(forks, &word)) == &word);
    for (int i = 0; i < BIRTHS; i++) {
        char text[8];
        char *words[] = {argv[0], text, NULL}, *none[] = {"none", NULL};
        pid_t child = -1;
        snprintf(text, sizeof text, "%d", i);
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ) == 0);
        ends_with(child, i);
        CHECK(posix_spawn(&child, "/nowhere/at/all", NULL, NULL, none, environ) == ENOENT);
        CHECK(system("exit 5") == 5 << 8);
    }
    say("all were born");
    return 0;
}
