/* An epoll descriptor inside another one, and in poll: readable when something in it is ready.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>

int main(void)
{
    int p[2], inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 1}, got;
    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, p[0], &event) == 0);
    event.data.u32 = 2;
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    CHECK_ERRNO(epoll_ctl(inner, EPOLL_CTL_ADD, outer, &event), ELOOP);
    CHECK(epoll_wait(outer, &got, 1, 0) == 0);
    write_all(p[1], "x", 1);
    CHECK(epoll_wait(outer, &got, 1, -1) == 1 && got.data.u32 == 2 && got.events == EPOLLIN);
    CHECK(epoll_wait(inner, &got, 1, 0) == 1 && got.data.u32 == 1);
    struct pollfd ready = {.fd = outer, .events = POLLIN};
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == POLLIN);
    char byte;
    CHECK(read(p[0], &byte, 1) == 1);
    CHECK(epoll_wait(outer, &got, 1, 0) == 0);
    CHECK(poll(&ready, 1, 0) == 0);
    say("nested epoll works");
    return 0;
}
