/* maxevents smaller than the number of ready files: level-triggered ones rotate, and each gets its turn.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

enum { FDS = 10 };

int main(void)
{
    int ep = epoll_create1(0), seen[FDS] = {0};
    struct epoll_event event = {.events = EPOLLIN}, got[3];
    for (unsigned i = 0; i < FDS; i++) {
        int p[2];
        CHECK(pipe(p) == 0);
        event.data.u32 = i;
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
        write_all(p[1], "x", 1);
    }
    for (int round = 0; round < FDS; round++) {
        int n = epoll_wait(ep, got, 3, 0);
        CHECK(n == 3);
        for (int i = 0; i < n; i++)
            seen[got[i].data.u32]++;
    }
    for (int i = 0; i < FDS; i++)
        say("fd %d reported %d times", i, seen[i]);
    CHECK_ERRNO(epoll_wait(ep, got, 0, 0), EINVAL);
    volatile int negative = -1;
    CHECK_ERRNO(epoll_wait(ep, got, negative, 0), EINVAL);
    return 0;
}
