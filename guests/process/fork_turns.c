/* Parent and child play ping-pong through pipes both ways, then write interleaved into one pipe.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 200 };

static void child(int in, int out, int shared)
{
    for (int i = 0; i < ROUNDS; i++) {
        int n;
        read_exact(in, &n, sizeof n);
        n = n * 3 + 1;
        write_all(out, &n, sizeof n);
    }
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(write(shared, "c", 1) == 1);
        if (i % 7 == 0)
            sched_yield();
    }
    _exit(3);
}

int main(void)
{
    int down[2], up[2], shared[2], status, n = 0, parent = 0, from_child = 0;
    char byte;
    CHECK(pipe(down) == 0 && pipe(up) == 0 && pipe(shared) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(down[0], up[1], shared[1]);
    for (int i = 0; i < ROUNDS; i++) {
        write_all(down[1], &n, sizeof n);
        read_exact(up[0], &n, sizeof n);
        n &= 0xffff;
    }
    say("after %d rounds: %d", ROUNDS, n);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(write(shared[1], "p", 1) == 1);
        if (i % 5 == 0)
            sched_yield();
    }
    CHECK(close(shared[1]) == 0);
    unsigned order = 0;
    while (read(shared[0], &byte, 1) == 1) {
        order = order * 31 + (unsigned)byte;
        *(byte == 'p' ? &parent : &from_child) += 1;
    }
    note("order %u", order);
    say("%d from the parent, %d from the child, then the end", parent, from_child);
    CHECK(waitpid(pid, &status, 0) == pid);
    say("exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
    return 0;
}
