/* epoll, edge-triggered: one report per arrival, none for data that are merely left over, again after new data or MOD.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

int main(void)
{
    int p[2], ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET}, got;
    char buffer[8];
    tcp_pair(p);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &event) == 0);
    CHECK(epoll_wait(ep, &got, 1, -1) == 1 && got.events == EPOLLOUT);
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    write_all(p[0], "abc", 3);
    CHECK(epoll_wait(ep, &got, 1, -1) == 1 && (got.events & EPOLLIN));
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    CHECK(read(p[1], buffer, 1) == 1);
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    say("left-over data is not reported");
    write_all(p[0], "d", 1);
    CHECK(epoll_wait(ep, &got, 1, -1) == 1 && (got.events & EPOLLIN));
    say("new data is");
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &event) == 0);
    CHECK(epoll_wait(ep, &got, 1, 0) == 1 && (got.events & EPOLLIN));
    say("so is MOD");
    read_exact(p[1], buffer, 3);
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    CHECK(epoll_wait(ep, &got, 1, -1) == 1 && (got.events & EPOLLIN));
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    CHECK(read(p[1], buffer, 1) == 0);
    say("and end of file");
    return 0;
}
