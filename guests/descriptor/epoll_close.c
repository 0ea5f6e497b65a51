/* Closing the last descriptor of a file removes it from epoll sets; a duplicate keeps it there, with the old number.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

int main(void)
{
    int p[2], ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 3}, got;

    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    write_all(p[1], "x", 1);
    CHECK(epoll_wait(ep, &got, 1, 0) == 1);
    CHECK(close(p[0]) == 0);
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL), EBADF);
    CHECK(close(p[1]) == 0);
    say("closed: gone");

    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    int copy = dup(p[0]);
    CHECK(close(p[0]) == 0);
    write_all(p[1], "x", 1);
    CHECK(epoll_wait(ep, &got, 1, 0) == 1 && got.data.u32 == 3);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, copy, NULL), ENOENT);
    event.data.u32 = 4;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, copy, &event) == 0);
    struct epoll_event both[4];
    CHECK(epoll_wait(ep, both, 4, 0) == 2);
    CHECK(both[0].data.u32 + both[1].data.u32 == 7);
    CHECK(close(copy) == 0);
    CHECK(epoll_wait(ep, both, 4, 0) == 0);
    CHECK(close(p[1]) == 0);
    say("duplicate: kept until the last close");

    /* The number is used again for another file: the new one is not in the set. */
    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    int old = p[0];
    CHECK(close(p[0]) == 0 && close(p[1]) == 0);
    CHECK(pipe(p) == 0);
    CHECK(p[0] == old);
    write_all(p[1], "x", 1);
    CHECK(epoll_wait(ep, both, 4, 0) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    say("the number again: not in the set");
    return 0;
}
