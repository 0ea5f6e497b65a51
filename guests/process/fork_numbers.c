/* Processes and threads that come now and then: their numbers are those of other replicas, whatever images are taken between.
 *
 * expect: same
 */
#include "guest.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 8 };

static void *named(void *unused)
{
    note("thread %ld", syscall(SYS_gettid));
    return unused;
}

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        int status;
        /* An entry passes. */
        CHECK(usleep(20000) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(usleep(5000) == 0);
            note("child %d", (int)getpid());
            _exit(round);
        }
        CHECK(pthread_create(&thread, NULL, named, NULL) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == round);
        note("forked %d", (int)child);
    }
    say("%d children", ROUNDS);
    return 0;
}
