/* EPOLLRDHUP, EPOLLHUP and EPOLLERR: half-close, full close, reset; HUP and ERR come unasked.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

static const char *names(unsigned events)
{
    static char text[128];
    snprintf(text, sizeof text, "%s%s%s%s%s", events & EPOLLIN ? " IN" : "", events & EPOLLOUT ? " OUT" : "",
             events & EPOLLRDHUP ? " RDHUP" : "", events & EPOLLHUP ? " HUP" : "", events & EPOLLERR ? " ERR" : "");
    return text;
}

static int watch(int fd, unsigned events)
{
    int ep = epoll_create1(0);
    struct epoll_event event = {.events = events};
    CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
    return ep;
}

static void report(const char *what, int ep)
{
    struct epoll_event got;
    CHECK(epoll_wait(ep, &got, 1, -1) == 1);
    say("%s:%s", what, names(got.events));
    CHECK(close(ep) == 0);
}

int main(void)
{
    int p[2];
    tcp_pair(p);
    int ep = watch(p[1], EPOLLRDHUP);
    int other = watch(p[1], EPOLLIN | EPOLLRDHUP);
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    report("peer half-closed, asked RDHUP", ep);
    report("peer half-closed, asked IN RDHUP", other);
    report("peer half-closed, asked IN", watch(p[1], EPOLLIN));
    report("half-closed, asked IN OUT", watch(p[0], EPOLLIN | EPOLLOUT));
    CHECK(shutdown(p[1], SHUT_WR) == 0);
    report("both half-closed, asked nothing", watch(p[1], 0));
    report("both half-closed, asked IN OUT RDHUP", watch(p[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP));
    close(p[0]), close(p[1]);

    tcp_pair(p);
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    CHECK(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    ep = watch(p[1], 0);
    CHECK(close(p[0]) == 0);
    report("reset, asked nothing", ep);
    report("reset, asked all", watch(p[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP));

    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    report("fresh socket, asked IN OUT", watch(fresh, EPOLLIN | EPOLLOUT));
    return 0;
}
