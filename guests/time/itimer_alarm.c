/* alarm and setitimer: with pause, with sigwait, interrupting accept, and their remaining time.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/time.h>

static volatile int seen;

static void handler(int number)
{
    seen = number;
}

static void interrupts(int number)
{
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(number, &action, NULL) == 0);
}

int main(void)
{
    struct itimerval timer = {.it_value.tv_usec = 5000}, left;
    sigset_t one;
    int number, port;

    interrupts(SIGALRM);
    CHECK(alarm(100) == 0);
    CHECK(alarm(1) == 100);
    CHECK_ERRNO(pause(), EINTR);
    CHECK(seen == SIGALRM);
    CHECK(alarm(0) == 0);
    say("alarm");

    seen = 0;
    int listener = tcp_listen(AF_INET, &port);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    CHECK_ERRNO(accept(listener, NULL, NULL), EINTR);
    CHECK(seen == SIGALRM);
    say("accept");

    sigemptyset(&one);
    sigaddset(&one, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    timer.it_interval.tv_usec = 2000;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        CHECK(sigwait(&one, &number) == 0);
        CHECK(number == SIGALRM);
    }
    CHECK(getitimer(ITIMER_REAL, &left) == 0);
    CHECK(left.it_interval.tv_usec == 2000 && left.it_value.tv_usec <= 2000);
    memset(&timer, 0, sizeof timer);
    CHECK(setitimer(ITIMER_REAL, &timer, &left) == 0);
    CHECK(left.it_interval.tv_usec == 2000);
    CHECK(getitimer(ITIMER_REAL, &left) == 0);
    CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
    say("periods");
    CHECK_ERRNO(setitimer(9, &timer, NULL), EINVAL);
    timer.it_value.tv_usec = 1000000;
    CHECK_ERRNO(setitimer(ITIMER_REAL, &timer, NULL), EINVAL);
    return 0;
}
