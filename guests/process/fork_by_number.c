/* clone by libc's syscall(): a fork where nothing is shared; namespaces of the child's own are refused as to an ordinary process.
 *
 * expect: same
 */
#include "guest.h"
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(void)
{
    volatile int mine = 1;
    int status;
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    CHECK(child >= 0);
    if (child == 0) {
        mine = 2;
        _exit(mine + 40);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
    CHECK(mine == 1);
    /* Natively the answer depends on the user. */
    child = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWPID | CLONE_NEWIPC, NULL, NULL, NULL, 0);
    if (child == 0)
        _exit(0);
    if (child > 0)
        CHECK(waitpid(child, &status, 0) == child);
    else
        CHECK(child == -1 && errno == EPERM);
    note("namespaces: %s", child > 0 ? "made" : "refused");
    say("a fork by its number");
    return 0;
}
