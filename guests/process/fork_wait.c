/* The ways to wait for children: any, one, a group, not at all, twice, none left; statuses and crashes.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>
#include <sys/resource.h>

static pid_t child(int code)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(code);
    return pid;
}

int main(void)
{
    int status;
    siginfo_t info;
    struct rusage usage;
    CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    CHECK(waitpid(1, &status, 0) == -1 && errno == ECHILD);
    CHECK(waitpid(-1, &status, 0x4000) == -1 && errno == EINVAL);

    pid_t one = child(1), two = child(2), three = child(3);
    CHECK(waitpid(two, &status, 0) == two && WEXITSTATUS(status) == 2);
    CHECK(waitpid(two, &status, 0) == -1 && errno == ECHILD);
    CHECK(wait4(three, &status, 0, &usage) == three && WEXITSTATUS(status) == 3);
    CHECK(wait(&status) == one && WEXITSTATUS(status) == 1);
    CHECK(wait(NULL) == -1 && errno == ECHILD);

    int gate[2];
    CHECK(pipe(gate) == 0);
    pid_t late = fork();
    CHECK(late >= 0);
    if (late == 0) {
        char byte;
        CHECK(close(gate[1]) == 0 && read(gate[0], &byte, 1) == 0);
        exit(40);
    }
    CHECK(waitpid(late, &status, WNOHANG) == 0);
    CHECK(waitpid(0, &status, WNOHANG) == 0);
    CHECK(waitpid(-getpgrp(), &status, WNOHANG | WUNTRACED) == 0);
    CHECK(close(gate[1]) == 0);
    CHECK(waitid(P_PID, (id_t)late, &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_pid == late && info.si_code == CLD_EXITED && info.si_status == 40 && info.si_signo == SIGCHLD);
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == late);
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == -1 && errno == ECHILD);

    pid_t killed = fork();
    CHECK(killed >= 0);
    if (killed == 0)
        for (;;)
            pause();
    CHECK(kill(killed, 0) == 0);
    CHECK(kill(killed, SIGKILL) == 0);
    CHECK(waitpid(killed, &status, 0) == killed);
    say("killed: signalled %d by %d", WIFSIGNALED(status), WTERMSIG(status));
    CHECK(kill(killed, 0) == -1 && errno == ESRCH);
    say("done");
    return 0;
}
