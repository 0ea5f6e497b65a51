/* A thread that waits in sigwait takes signals to the process; sigsuspend and ppoll let one in for their own time only.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

static volatile int seen, masked;

static void handler(int number)
{
    sigset_t now;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    masked = sigismember(&now, SIGUSR2);
    seen = number;
}

static sigset_t all;

static void *waiter(void *arg)
{
    int number, *count = arg;
    for (;;) {
        CHECK(sigwait(&all, &number) == 0);
        if (number == SIGTERM)
            return NULL;
        CHECK(number == SIGUSR1);
        __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    }
}

static void *sender(void *arg)
{
    sleep_ms(20);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    return arg;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    sigset_t old, open;
    int count = 0;

    sigemptyset(&all);
    sigaddset(&all, SIGUSR1);
    sigaddset(&all, SIGUSR2);
    sigaddset(&all, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &old) == 0);
    pthread_t t = spawn(waiter, &count);
    for (int i = 1; i <= 3; i++) {
        CHECK(kill(getpid(), SIGUSR1) == 0);
        while (__atomic_load_n(&count, __ATOMIC_SEQ_CST) < i)
            sleep_ms(1);
    }
    CHECK(pthread_kill(t, SIGTERM) == 0);
    join(t);
    say("waited %d", count);

    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    sigemptyset(&open);
    sigaddset(&open, SIGUSR1);
    t = spawn(sender, NULL);
    CHECK_ERRNO(sigsuspend(&open), EINTR);
    join(t);
    CHECK(seen == SIGUSR2 && masked == 1);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &open) == 0);
    CHECK(sigismember(&open, SIGUSR2) == 1 && sigismember(&open, SIGTERM) == 1);
    say("suspended");

    seen = 0;
    CHECK(raise(SIGUSR2) == 0);
    CHECK(seen == 0);
    sigemptyset(&open);
    struct timespec long_time = {.tv_sec = 60};
    CHECK_ERRNO(ppoll(NULL, 0, &long_time, &open), EINTR);
    CHECK(seen == SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &open) == 0);
    CHECK(sigismember(&open, SIGUSR2) == 1);
    say("polled");

    struct timespec short_time = {.tv_nsec = 1000000};
    CHECK_ERRNO(sigtimedwait(&all, NULL, &short_time), EAGAIN);
    t = spawn(sender, NULL);
    CHECK(sigwaitinfo(&all, NULL) == SIGUSR2);
    join(t);
    say("taken");
    return 0;
}
