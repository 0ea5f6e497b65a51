/* Edge-triggered epoll over pipes and eventfds: every write is an edge, even without a read between.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

int main(void)
{
    int p[2], ep = epoll_create1(0), ev = eventfd(0, EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got[2];
    CHECK(pipe(p) == 0);
    event.data.fd = p[0];
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    event.data.fd = ev;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, ev, &event) == 0);
    for (int i = 0; i < 3; i++) {
        uint64_t one = 1;
        CHECK(epoll_wait(ep, got, 2, 0) == 0);
        write_all(p[1], "x", 1);
        CHECK(epoll_wait(ep, got, 2, 0) == 1 && got[0].data.fd == p[0]);
        write_all(ev, &one, sizeof one);
        CHECK(epoll_wait(ep, got, 2, 0) == 1 && got[0].data.fd == ev);
    }
    uint64_t count = 0;
    CHECK(read(ev, &count, sizeof count) == sizeof count);
    say("an edge each write, eventfd count %llu", (unsigned long long)count);
    return 0;
}
