/* Stopping and continuing children: the waiters' reports, a stopped child's silence, the other processes' turns; ends in the middle of it.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static int told, continued;

static void child_news(int signo, siginfo_t *info, void *context)
{
    (void)signo, (void)context;
    told++;
    continued += info->si_code == CLD_CONTINUED;
}

static void *echo(void *arg)
{
    int *pipes = arg;
    char byte;
    while (read(pipes[0], &byte, 1) == 1)
        CHECK(write(pipes[3], &byte, 1) == 1);
    return NULL;
}

static void wait_for(pid_t pid, int options, int wanted)
{
    int status;
    CHECK(waitpid(pid, &status, options) == pid);
    CHECK(status == wanted);
}

int main(void)
{
    int there[2], back[2], status;
    char byte;
    siginfo_t info;
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    struct sigaction action = {.sa_sigaction = child_news, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);

    int pipes[4] = {there[0], there[1], back[0], back[1]};
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(there[1]) == 0 && setpgid(0, 0) == 0);
        /* Two threads, one of them busy. */
        spawn(echo, pipes);
        for (;;)
            sched_yield();
    }
    CHECK(close(there[0]) == 0);
    CHECK(write(there[1], "a", 1) == 1 && read(back[0], &byte, 1) == 1);
    CHECK(waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitid(P_PID, (id_t)child, &info, WSTOPPED | WNOWAIT) == 0);
    CHECK(info.si_code == CLD_STOPPED && info.si_status == SIGSTOP && info.si_pid == child);
    wait_for(child, WUNTRACED, SIGSTOP << 8 | 0x7f);
    CHECK(waitpid(child, &status, WNOHANG | WUNTRACED) == 0);
    CHECK(told == 1);
    /* It does nothing while it is stopped. */
    CHECK(write(there[1], "b", 1) == 1);
    set_nonblocking(back[0]);
    for (int i = 0; i < 50; i++)
        sched_yield();
    CHECK_ERRNO(read(back[0], &byte, 1), EAGAIN);
    CHECK(fcntl(back[0], F_SETFL, 0) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    wait_for(child, WCONTINUED, 0xffff);
    CHECK(read(back[0], &byte, 1) == 1 && byte == 'b');
    CHECK(told == 2 && continued == 1);
    say("stopped, and gone on");

    /* A terminal's stop, which can be ignored. */
    CHECK(kill(child, SIGTSTP) == 0);
    wait_for(child, WUNTRACED, SIGTSTP << 8 | 0x7f);
    /* A stopped process takes a signal when it continues, except for SIGKILL. */
    CHECK(kill(child, SIGTERM) == 0);
    for (int i = 0; i < 20; i++)
        sched_yield();
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    wait_for(child, 0, SIGTERM);
    CHECK(close(there[1]) == 0 && close(back[0]) == 0);

    action.sa_flags |= SA_NOCLDSTOP;
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    told = 0;
    child = fork();
    if (child == 0) {
        CHECK(signal(SIGTSTP, SIG_IGN) != SIG_ERR && raise(SIGTSTP) == 0);
        CHECK(raise(SIGSTOP) == 0);
        CHECK(kill(getpid(), SIGSTOP) == 0);
        _exit(3);
    }
    wait_for(child, WUNTRACED, SIGSTOP << 8 | 0x7f);
    CHECK(told == 0 && kill(child, SIGCONT) == 0);
    wait_for(child, WUNTRACED, SIGSTOP << 8 | 0x7f);
    CHECK(kill(child, SIGCONT) == 0);
    wait_for(child, 0, 3 << 8);
    child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    wait_for(child, WUNTRACED, SIGSTOP << 8 | 0x7f);
    CHECK(kill(child, SIGKILL) == 0);
    wait_for(child, WUNTRACED, SIGKILL);
    say("by itself, and killed");

    /* Blocked stops wait; continuing takes them back. */
    sigset_t set, pending;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGTSTP) == 0 && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(kill(getpid(), SIGTSTP) == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGTSTP));
    CHECK(kill(getpid(), SIGCONT) == 0 && sigpending(&pending) == 0 && !sigismember(&pending, SIGTSTP));
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    say("blocked and taken back");

    /* The children of a child that ends: those that are stopped in a group of their own get SIGHUP. */
    int gone[2];
    CHECK(pipe(gone) == 0);
    pid_t leader = fork();
    if (leader == 0) {
        CHECK(setpgid(0, 0) == 0);
        pid_t job = fork();
        if (job == 0) {
            CHECK(setpgid(0, 0) == 0);
            raise(SIGSTOP);
            _exit(0);
        }
        CHECK(waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status));
        _exit(0);
    }
    wait_for(leader, 0, 0);
    CHECK(close(gone[1]) == 0 && read(gone[0], &byte, 1) == 0);
    say("hung up");
    return 0;
}
