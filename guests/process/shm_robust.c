/* A process dies with a robust process-shared mutex: by its own end, killed; the waiter gets it with EOWNERDEAD.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

int main(void)
{
    int status, gate[2];
    char byte;
    pthread_mutex_t *mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(mutex != MAP_FAILED && pipe(gate) == 0);
    pthread_mutexattr_t attr;
    CHECK(pthread_mutexattr_init(&attr) == 0 && pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(mutex, &attr) == 0);
    for (int how = 0; how < 2; how++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(pthread_mutex_lock(mutex) == 0);
            CHECK(write(gate[1], "x", 1) == 1);
            if (how == 0) {
                sleep_ms(20);
                _exit(0);
            }
            for (;;)
                pause();
        }
        CHECK(read(gate[0], &byte, 1) == 1);
        CHECK(pthread_mutex_trylock(mutex) == EBUSY);
        if (how == 1)
            CHECK(kill(pid, SIGKILL) == 0);
        CHECK(pthread_mutex_lock(mutex) == EOWNERDEAD);
        CHECK(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        say("%s %d", WIFEXITED(status) ? "exited" : "killed by", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    CHECK(pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    say("done");
    return 0;
}
