/* epoll_pwait and epoll_pwait2: with and without a mask, timeouts in ms and as a timespec.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

int main(void)
{
    int p[2], ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, got;
    sigset_t mask, before, after;
    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
    CHECK(epoll_pwait(ep, &got, 1, 0, &mask) == 0);
    CHECK(epoll_pwait(ep, &got, 1, 5, NULL) == 0);
    struct timespec ts = {0, 30 * NS_PER_MS}, zero = {0, 0}, bad = {0, -1};
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(epoll_pwait2(ep, &got, 1, &ts, &mask) == 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30 * NS_PER_MS);
    CHECK_ERRNO(epoll_pwait2(ep, &got, 1, &bad, NULL), EINVAL);
    write_all(p[1], "x", 1);
    CHECK(epoll_pwait(ep, &got, 1, -1, &mask) == 1);
    CHECK(epoll_pwait2(ep, &got, 1, NULL, NULL) == 1);
    CHECK(epoll_pwait2(ep, &got, 1, &zero, NULL) == 1);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &after) == 0);
    CHECK(sigismember(&after, SIGUSR1) == sigismember(&before, SIGUSR1));
    say("ready, timed out, mask restored");
    return 0;
}
