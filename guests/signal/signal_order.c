/* Several pending signals: the order of handlers, nested masks, SA_NODEFER, SA_RESETHAND, sigpending, a signal raised in a handler.
 *
 * expect: same
 */
#include "guest.h"

static volatile int depth, rounds;
static char trace[256];

static void put(const char *text)
{
    strcat(trace, text);
    strcat(trace, " ");
}

static void plain(int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    put(text);
}

static void nested(int number)
{
    sigset_t now;
    plain(number);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGUSR1) == 1);
    CHECK(sigismember(&now, SIGHUP) == 1);
    CHECK(sigismember(&now, SIGUSR2) == 0);
    put("(");
    CHECK(raise(SIGUSR2) == 0);
    CHECK(raise(SIGHUP) == 0);
    if (++rounds < 3)
        CHECK(raise(SIGUSR1) == 0);
    put(")");
}

static void again(int number)
{
    plain(number);
    if (++depth < 3)
        CHECK(raise(number) == 0);
    put("out");
}

static void set(int number, void (*handler)(int), int flags, int also)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    if (also)
        sigaddset(&action.sa_mask, also);
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void show(const char *what)
{
    say("%s: %s", what, trace);
    trace[0] = 0;
}

int main(void)
{
    sigset_t some, old, pending;
    struct sigaction was;

    set(SIGUSR1, plain, 0, 0);
    set(SIGUSR2, plain, 0, 0);
    set(SIGHUP, plain, 0, 0);
    CHECK(raise(SIGUSR1) == 0);
    show("at once");

    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGUSR2);
    sigaddset(&some, SIGHUP);
    CHECK(sigprocmask(SIG_BLOCK, &some, &old) == 0);
    CHECK(raise(SIGUSR2) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(raise(SIGHUP) == 0);
    CHECK(raise(SIGHUP) == 0);
    CHECK(sigpending(&pending) == 0);
    say("pending %d %d %d %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2),
        sigismember(&pending, SIGHUP), sigismember(&pending, SIGTERM));
    show("blocked");
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    show("unblocked");

    set(SIGUSR1, nested, 0, SIGHUP);
    CHECK(raise(SIGUSR1) == 0);
    show("nested");

    set(SIGUSR2, again, 0, 0);
    CHECK(raise(SIGUSR2) == 0);
    show("deferred");
    depth = 0;
    set(SIGUSR2, again, SA_NODEFER, 0);
    CHECK(raise(SIGUSR2) == 0);
    show("not deferred");

    set(SIGTERM, plain, SA_RESETHAND, 0);
    CHECK(raise(SIGTERM) == 0);
    CHECK(sigaction(SIGTERM, NULL, &was) == 0);
    CHECK(was.sa_handler == SIG_DFL);
    show("reset");

    /* Ignored while it is pending: gone. */
    CHECK(sigprocmask(SIG_BLOCK, &some, NULL) == 0);
    CHECK(raise(SIGHUP) == 0);
    CHECK(signal(SIGHUP, SIG_IGN) == plain);
    CHECK(signal(SIGHUP, plain) == SIG_IGN);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    show("ignored");

    CHECK_ERRNO(kill(getpid(), 65), EINVAL);
    CHECK_ERRNO(kill(getpid(), -1), EINVAL);
    CHECK_ERRNO(sigaction(SIGKILL, &was, NULL), EINVAL);
    CHECK_ERRNO(sigaction(0, &was, NULL), EINVAL);
    CHECK(kill(getpid(), 0) == 0);
    CHECK_ERRNO(kill(999999, 0), ESRCH);
    return 0;
}
