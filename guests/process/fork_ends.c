/* Children that crash, each by a signal of its own, seen through waitpid, waitid and SIGCHLD; orphans that a subreaper gets.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static siginfo_t last;

static void seen(int signo, siginfo_t *info, void *context)
{
    (void)signo, (void)context;
    last = *info;
}

static void crash(int how)
{
    static volatile int zero;
    static int *volatile nowhere;
    switch (how) {
    case SIGSEGV:
        *nowhere = 1;
        break;
    case SIGFPE:
        zero = 100 / zero;
        break;
    case SIGILL:
        __builtin_trap();
    case SIGABRT:
        abort();
    case SIGKILL:
        kill(getpid(), SIGKILL);
        break;
    default:
        raise(how);
    }
}

int main(void)
{
    static const int ways[] = {SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGKILL, SIGTERM, SIGUSR1, SIGPIPE, SIGALRM, SIGXCPU};
    int status;
    siginfo_t info;
    struct sigaction action = {.sa_sigaction = seen, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct rlimit none = {0, 0};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    /* No core, wherever this runs. */
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0 && setrlimit(RLIMIT_CORE, &none) == 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            crash(ways[i]);
            _exit(0);
        }
        CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
        CHECK(info.si_code == CLD_KILLED && info.si_status == ways[i] && info.si_pid == pid);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == ways[i] && !WCOREDUMP(status) && !WIFEXITED(status));
        CHECK(!WIFSTOPPED(status) && last.si_pid == pid && last.si_code == CLD_KILLED && last.si_status == ways[i]);
        say("by %d", ways[i]);
    }

    /* A grandchild without a parent goes to the nearest subreaper. */
    int reaps = -1, told[2], gate[2];
    pid_t orphan;
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &reaps) == 0 && reaps == 0);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &reaps) == 0 && reaps == 1);
    CHECK(pipe(told) == 0 && pipe(gate) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(prctl(PR_GET_CHILD_SUBREAPER, &reaps) == 0 && reaps == 0);
        orphan = fork();
        if (orphan == 0) {
            char byte;
            CHECK(close(gate[1]) == 0 && read(gate[0], &byte, 1) == 0);
            pid_t parent = getppid();
            write_all(told[1], &parent, sizeof parent);
            _exit(7);
        }
        write_all(told[1], &orphan, sizeof orphan);
        _exit(3);
    }
    read_exact(told[0], &orphan, sizeof orphan);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
    CHECK(close(gate[1]) == 0);
    read_exact(told[0], &pid, sizeof pid);
    CHECK(pid == getpid());
    CHECK(wait(&status) == orphan && WEXITSTATUS(status) == 7);
    CHECK(wait(&status) == -1 && errno == ECHILD);
    say("an orphan came here");
    return 0;
}
