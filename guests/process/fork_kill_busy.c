/* Processes that end, or are killed, while threads of theirs could run.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static void *busy(void *arg)
{
    (void)arg;
    for (;;)
        sched_yield();
    return NULL;
}

int main(void)
{
    int status, told[2];
    char byte;
    CHECK(pipe(told) == 0);
    for (int round = 0; round < 4; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 0; i < 3; i++)
                spawn(busy, NULL);
            for (int i = 0; i < 5; i++)
                sched_yield();
            CHECK(write(told[1], "x", 1) == 1);
            if (round % 2)
                busy(NULL);
            _exit(4);
        }
        CHECK(read(told[0], &byte, 1) == 1);
        for (int i = 0; i < 5; i++)
            sched_yield();
        if (round % 2)
            CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        say("%d", round % 2 ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return 0;
}
