/* The same calls through libc's syscall(): futex, gettid, getrandom, clock_gettime, socket, epoll, eventfd, nanosleep.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/syscall.h>

int main(void)
{
    struct timespec ts, pause = to_timespec(10 * NS_PER_MS);
    uint64_t bytes[2] = {0}, value = 1;
    say("before");
    fflush(stdout);
    CHECK(syscall(SYS_gettid) == gettid());
    CHECK(syscall(SYS_getpid) == getpid());
    CHECK(syscall(SYS_getrandom, bytes, sizeof bytes, 0) == sizeof bytes);
    note("random %016llx %016llx", (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts) == 0);
    CHECK(ts.tv_sec * NS_PER_S + ts.tv_nsec <= now_ns(CLOCK_MONOTONIC));
    CHECK(syscall(SYS_nanosleep, &pause, NULL) == 0);
    CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL) == 0);
    CHECK(now_ns(CLOCK_MONOTONIC) >= ts.tv_sec * NS_PER_S + ts.tv_nsec + 20 * NS_PER_MS);
    long ev = syscall(SYS_eventfd2, 0, 0), ep = syscall(SYS_epoll_create1, 0);
    CHECK(ev >= 0 && ep >= 0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, ev, &event) == 0);
    CHECK(syscall(SYS_write, ev, &value, sizeof value) == sizeof value);
    CHECK(epoll_wait((int)ep, &event, 1, -1) == 1);
    CHECK(syscall(SYS_read, ev, &value, sizeof value) == sizeof value);
    CHECK(syscall(SYS_sched_yield) == 0);
    long fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && syscall(SYS_close, fd) == 0);
    say("by syscall()");
    return 0;
}
