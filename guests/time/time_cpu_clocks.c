/* The processor time of threads and of other processes by clock ids.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static void *runs(void *arg)
{
    clockid_t *clock = arg;
    struct timespec at;
    CHECK(pthread_getcpuclockid(pthread_self(), clock) == 0);
    CHECK(clock_gettime(*clock, &at) == 0 && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at) == 0);
    return NULL;
}

int main(void)
{
    clockid_t of_thread, of_main, of_process, of_child;
    struct timespec resolution, before, after;
    join(spawn(runs, &of_thread));
    CHECK(pthread_getcpuclockid(pthread_self(), &of_main) == 0 && of_main != of_thread);
    CHECK(clock_getcpuclockid(0, &of_process) == 0);
    CHECK(clock_getcpuclockid(getpid(), &of_process) == 0);
    CHECK(clock_getres(of_process, &resolution) == 0 && resolution.tv_sec == 0 && resolution.tv_nsec == 1);
    CHECK(clock_gettime(of_process, &before) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(clock_gettime(of_main, &after) == 0);
    CHECK(clock_gettime(of_process, &after) == 0);
    CHECK(after.tv_sec > before.tv_sec || (after.tv_sec == before.tv_sec && after.tv_nsec > before.tv_nsec));
    note("%ld.%09ld", (long)after.tv_sec, after.tv_nsec);
    /* A thread that is gone, and a process that never was. */
    CHECK_ERRNO(clock_gettime(of_thread, &after), EINVAL);
    CHECK(clock_getcpuclockid(999999, &of_child) == ESRCH);
    int gate[2], status;
    CHECK(pipe(gate) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        CHECK(close(gate[1]) == 0 && read(gate[0], &byte, 1) == 0);
        _exit(0);
    }
    CHECK(clock_getcpuclockid(child, &of_child) == 0 && clock_gettime(of_child, &after) == 0);
    CHECK(close(gate[1]) == 0 && waitpid(child, &status, 0) == child);
    CHECK(clock_getcpuclockid(child, &of_child) == ESRCH);
    CHECK_ERRNO(clock_gettime(of_child, &after), EINVAL);
    say("done");
    return 0;
}
