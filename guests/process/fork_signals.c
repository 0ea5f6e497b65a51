/* Signals between processes: to a blocked child, that end a child, to a group; SIGCHLD; a child's inheritance; alarm in a child.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static volatile int seen, children;

static void handler(int number)
{
    seen = number;
}

static void on_child(int number, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(number == SIGCHLD && info->si_code == CLD_EXITED && info->si_status == 9);
    children++;
}

static pid_t child(void (*body)(void))
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    return pid;
}

static void show(const char *what, pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        say("%s: signal %d", what, WTERMSIG(status));
    else
        say("%s: exit %d", what, WEXITSTATUS(status));
}

static int ready[2];

static void tell(void)
{
    CHECK(write(ready[1], "r", 1) == 1);
}

static void listen_for(void)
{
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
}

static void wait_usr1(void)
{
    sigset_t open;
    sigemptyset(&open);
    tell();
    CHECK_ERRNO(sigsuspend(&open), EINTR);
    CHECK(seen == SIGUSR1);
    _exit(5);
}

static void sleeps(void)
{
    tell();
    for (;;)
        pause();
}

static void alarmed(void)
{
    signal(SIGALRM, SIG_DFL);
    alarm(1);
    for (;;)
        pause();
}

static void crashes(void)
{
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)NULL = 1;
}

static void aborts(void)
{
    abort();
}

static void exits(void)
{
    _exit(9);
}

static void tells_parent(void)
{
    tell();
    CHECK(kill(getppid(), SIGUSR2) == 0);
    _exit(0);
}

static void inherits(void)
{
    struct sigaction was;
    sigset_t mask, pending;
    CHECK(sigaction(SIGUSR2, NULL, &was) == 0 && was.sa_handler == handler);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGUSR1));
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
}

int main(void)
{
    sigset_t one, old;
    CHECK(pipe(ready) == 0);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &one, &old) == 0);

    CHECK(raise(SIGUSR1) == 0);
    show("inherits", child(inherits));
    CHECK(signal(SIGUSR1, SIG_IGN) == handler);
    signal(SIGUSR1, handler);

    pid_t pid = child(wait_usr1);
    listen_for();
    CHECK(kill(pid, SIGUSR1) == 0);
    show("suspended", pid);

    pid = child(sleeps);
    listen_for();
    CHECK(kill(pid, SIGTERM) == 0);
    show("terminated", pid);
    CHECK_ERRNO(kill(pid, 0), ESRCH);
    pid = child(sleeps);
    listen_for();
    CHECK(kill(pid, SIGKILL) == 0);
    show("killed", pid);
    show("alarm", child(alarmed));
    show("crash", child(crashes));
    show("abort", child(aborts));

    pid = child(tells_parent);
    listen_for();
    show("told", pid);
    CHECK(seen == SIGUSR2);

    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    show("counted", child(exits));
    CHECK(children == 1);
    /* It may come before this waits for it. */
    sigset_t closed, open;
    sigemptyset(&closed);
    sigaddset(&closed, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &closed, &open) == 0);
    pid = child(exits);
    while (children < 2)
        sigsuspend(&open);
    CHECK(sigprocmask(SIG_SETMASK, &open, NULL) == 0);
    show("counted", pid);
    signal(SIGCHLD, SIG_IGN);
    pid = child(exits);
    CHECK_ERRNO(waitpid(pid, NULL, 0), ECHILD);
    say("ignored");
    signal(SIGCHLD, SIG_DFL);

    CHECK(setpgid(0, 0) == 0 || errno == EPERM);
    pid_t first = child(sleeps), second = child(sleeps);
    listen_for();
    listen_for();
    signal(SIGHUP, SIG_IGN);
    CHECK(setpgid(first, first) == 0);
    CHECK(setpgid(second, first) == 0);
    CHECK(kill(-first, SIGHUP) == 0);
    show("group", first);
    show("group", second);
    return 0;
}
