/* EPOLLONESHOT: disarmed after one report until MOD arms it again, also with ET.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

int main(void)
{
    unsigned kinds[] = {EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLONESHOT | EPOLLET};
    for (int k = 0; k < 2; k++) {
        int p[2], ep = epoll_create1(0);
        struct epoll_event event = {.events = kinds[k], .data.u32 = 5}, got;
        tcp_pair(p);
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &event) == 0);
        write_all(p[0], "a", 1);
        CHECK(epoll_wait(ep, &got, 1, -1) == 1 && got.data.u32 == 5);
        CHECK(epoll_wait(ep, &got, 1, 0) == 0);
        write_all(p[0], "b", 1);
        CHECK(epoll_wait(ep, &got, 1, 0) == 0);
        CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &event), EEXIST);
        CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &event) == 0);
        CHECK(epoll_wait(ep, &got, 1, -1) == 1);
        CHECK(epoll_wait(ep, &got, 1, 0) == 0);
        CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) == 0);
        say("kind %d: once per arming", k);
        close(p[0]), close(p[1]), close(ep);
    }
    return 0;
}
