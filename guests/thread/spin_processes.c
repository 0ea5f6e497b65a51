/* Processes wait for each other by memory that they share: a child for its parent's word, in turns, and a parent for its children. A signal's handler
 * ends a wait, too.
 *
 * expect: same
 */
#include "spin.h"

#define CHILDREN 3
#define ROUNDS 15

struct shared {
    volatile int turn;
    volatile int ready[CHILDREN];
    volatile int go;
};

static volatile sig_atomic_t signalled;

static void on_signal(int signo)
{
    (void)signo;
    signalled = 1;
}

int main(void)
{
    struct shared *shared = shared_memory(sizeof *shared);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            shared->ready[i] = 1;
            while (!shared->go)
                ;
            for (int round = 0; round < ROUNDS; round++) {
                while (shared->turn % (CHILDREN + 1) != i)
                    PAUSE();
                shared->turn = shared->turn + 1;
            }
            _exit(10 + i);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        while (!shared->ready[i])
            ;
    }
    say("all are ready");
    shared->go = 1;
    for (int round = 0; round < ROUNDS; round++) {
        while (shared->turn % (CHILDREN + 1) != CHILDREN)
            PAUSE();
        shared->turn = shared->turn + 1;
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        say("child %d: %d", i, WEXITSTATUS(status));
    }
    say("turns: %d", shared->turn);

    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sleep_ms(10);
        CHECK(kill(parent, SIGUSR1) == 0);
        _exit(0);
    }
    while (!signalled)
        ;
    CHECK(waitpid(child, NULL, 0) == child);
    say("the signal came");
    return 0;
}
