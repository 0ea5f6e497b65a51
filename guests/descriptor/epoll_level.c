/* epoll, level-triggered: reported again until the data are read; the user's data word comes back as given; MOD changes both.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

int main(void)
{
    int p[2], ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1122334455667788}, got[4];
    char buffer[8];
    tcp_pair(p);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &event) == 0);
    CHECK(epoll_wait(ep, got, 4, 0) == 0);
    write_all(p[0], "abc", 3);
    for (int i = 0; i < 3; i++) {
        CHECK(epoll_wait(ep, got, 4, -1) == 1);
        CHECK(got[0].events == EPOLLIN && got[0].data.u64 == 0x1122334455667788);
        CHECK(read(p[1], buffer, 1) == 1);
    }
    CHECK(epoll_wait(ep, got, 4, 0) == 0);
    say("reported until read");
    event.events = EPOLLIN | EPOLLOUT;
    event.data.u32 = 7;
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &event) == 0);
    CHECK(epoll_wait(ep, got, 4, -1) == 1 && got[0].events == EPOLLOUT && got[0].data.u32 == 7);
    event.events = 0;
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &event) == 0);
    write_all(p[0], "x", 1);
    CHECK(epoll_wait(ep, got, 4, 0) == 0);
    event.events = EPOLLIN;
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &event) == 0);
    CHECK(epoll_wait(ep, got, 4, -1) == 1);
    say("MOD checks readiness at once");
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) == 0);
    CHECK(epoll_wait(ep, got, 4, 0) == 0);
    write_all(p[0], "y", 1);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &event) == 0);
    CHECK(epoll_wait(ep, got, 4, 0) == 1);
    say("ADD checks readiness at once");
    return 0;
}
