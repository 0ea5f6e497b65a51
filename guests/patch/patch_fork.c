/* Places in forked processes: replaced before the fork, and after it in the child only. A fork by a replaced place, and an executed program.
 * Places are in the parent, in two children of it, and in an executed program: a place that one has met is known to the others.
 *
 * expect: same
 * net: 4 places, 2400 executions
 */
#include "patch.h"
#include <sys/wait.h>

static void often(void)
{
    uint64_t last = 0;
    for (int i = 0; i < OFTEN; i++) {
        uint64_t now = stamp();
        CHECK(now >= last);
        last = now;
    }
}

static void calls(void)
{
    for (int i = 0; i < OFTEN; i++)
        CHECK(call(SYS_getppid, 0, 0, 0, 0) == getppid());
}

static void ends_well(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        often();
        calls();
        return 3;
    }
    often();
    pid_t child = fork();
    if (child == 0) {
        often();
        calls();
        _exit(3);
    }
    ends_well(child);
    calls();
    child = (pid_t)call(SYS_clone, SIGCHLD, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        often();
        calls();
        call(SYS_exit_group, 3, 0, 0, 0);
    }
    ends_well(child);
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "again", NULL);
        _exit(1);
    }
    ends_well(child);
    say("three children");
    return 0;
}
