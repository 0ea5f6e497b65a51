/* Real-time signals queue, with their values, in order; siginfo names the sender of a signal.
 *
 * expect: same
 */
#include "guest.h"

static char trace[512];

static void take(int number, siginfo_t *info, void *context)
{
    char text[64];
    CHECK(context != NULL);
    CHECK(info->si_signo == number);
    CHECK(info->si_pid == getpid());
    CHECK(info->si_uid == getuid());
    snprintf(text, sizeof text, "%d/%d/%d ", number - SIGRTMIN, info->si_code, info->si_value.sival_int);
    strcat(trace, text);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO};
    sigset_t some, old;
    siginfo_t info;
    struct timespec none = {0, 0};

    sigfillset(&action.sa_mask);
    sigemptyset(&some);
    for (int i = 0; i < 3; i++) {
        CHECK(sigaction(SIGRTMIN + i, &action, NULL) == 0);
        sigaddset(&some, SIGRTMIN + i);
    }
    CHECK(sigprocmask(SIG_BLOCK, &some, &old) == 0);
    for (int i = 0; i < 3; i++) {
        union sigval value = {.sival_int = 10 + i};
        CHECK(sigqueue(getpid(), SIGRTMIN + 1, value) == 0);
        value.sival_int += 10;
        CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);
    }
    CHECK(kill(getpid(), SIGRTMIN + 2) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    say("handled: %s", trace);
    trace[0] = 0;

    CHECK(sigprocmask(SIG_BLOCK, &some, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        union sigval value = {.sival_int = i};
        CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + (3 - i) % 3, value) == 0);
    }
    for (int i = 0; i < 4; i++) {
        int number = i % 2 ? sigtimedwait(&some, &info, &none) : sigwaitinfo(&some, &info);
        say("taken %d value %d code %d", number - SIGRTMIN, info.si_value.sival_int, info.si_code == SI_QUEUE);
    }
    CHECK_ERRNO(sigtimedwait(&some, &info, &none), EAGAIN);
    say("left: %s", trace);
    return 0;
}
