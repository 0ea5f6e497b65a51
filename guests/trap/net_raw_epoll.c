/* epoll, eventfd and pipe by inline system calls, and read of a descriptor that is virtual for libc's functions.
 *
 * expect: same
 * or fatal: read | epoll | eventfd
 */
#include "raw.h"
#include <sys/epoll.h>

int main(void)
{
    int p[2];
    char byte = 0;
    CHECK(pipe(p) == 0);
    write_all(p[1], "x", 1);
    say("before");
    fflush(stdout);
    CHECK(raw3(SYS_read, p[0], (long)&byte, 1) == 1 && byte == 'x');
    long ep = raw3(SYS_epoll_create1, 0, 0, 0), ev = raw3(SYS_eventfd2, 1, 0, 0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(ep >= 0 && ev >= 0);
    CHECK(raw6(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, ev, (long)&event, 0, 0) == 0);
    CHECK(raw6(SYS_epoll_wait, ep, (long)&event, 1, -1, 0, 0) == 1);
    say("descriptors by inline system calls");
    return 0;
}
