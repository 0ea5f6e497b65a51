/* A grandchild outlives its parent and becomes init's (or a subreaper's); the whole server outlives its first process.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

int main(void)
{
    int status, up[2], gate[2], born[2];
    pid_t seen;
    CHECK(pipe(up) == 0 && pipe(gate) == 0 && pipe(born) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        pid_t me = getpid();
        CHECK(setsid() == me && getsid(0) == me && getpgrp() == me);
        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            char byte;
            CHECK(getppid() == me && write(born[1], "b", 1) == 1);
            CHECK(close(gate[1]) == 0 && read(gate[0], &byte, 1) == 0);
            seen = getppid();
            write_all(up[1], &seen, sizeof seen);
            CHECK(getsid(0) == me);
            /* By now its grandparent, the first process, may be gone. */
            sleep_ms(50);
            say("the last one ends");
            _exit(9);
        }
        char byte;
        CHECK(read(born[0], &byte, 1) == 1);
        _exit(5);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    CHECK(close(gate[1]) == 0);
    read_exact(up[0], &seen, sizeof seen);
    say("an orphan's parent is %d", seen);
    CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    say("the first one ends");
    return 0;
}
