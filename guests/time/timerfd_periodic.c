/* timerfd, periodic: expirations counted while nobody reads, interval reported, epoll level-triggered.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>

int main(void)
{
    struct itimerspec spec = {.it_interval = {0, 10 * NS_PER_MS}, .it_value = {0, 10 * NS_PER_MS}}, got;
    int fd = timerfd_create(CLOCK_MONOTONIC, 0), ep = epoll_create1(0);
    uint64_t count = 0, total = 0;
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(timerfd_settime(fd, 0, &spec, NULL) == 0);
    CHECK(timerfd_gettime(fd, &got) == 0);
    say("interval %ld ns", got.it_interval.tv_nsec);
    sleep_ms(55);
    CHECK(read(fd, &count, 8) == 8);
    CHECK(count >= 5);
    note("expirations after 55 ms: %llu", (unsigned long long)count);
    total = count;
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
    while (total < 20) {
        CHECK(epoll_wait(ep, &event, 1, -1) == 1);
        CHECK(read(fd, &count, 8) == 8 && count > 0);
        total += count;
        int64_t elapsed = now_ns(CLOCK_MONOTONIC) - start;
        CHECK((int64_t)total <= elapsed / (10 * NS_PER_MS));
    }
    say("never more expirations than intervals");
    return 0;
}
