/* A full send buffer: EAGAIN and no POLLOUT until the peer has read; nothing is lost.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>

static char chunk[65536];

int main(void)
{
    int p[2];
    tcp_pair(p);
    set_nonblocking(p[0]);
    size_t sent = 0, received = 0;
    uint64_t sent_sum = 0, received_sum = 0;
    int stalls = 0;
    ssize_t n;

    for (;;) {
        for (size_t i = 0; i < sizeof chunk; i++)
            chunk[i] = (char)((sent + i) * 7);
        n = write(p[0], chunk, sizeof chunk);
        if (n < 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            sent_sum += (unsigned char)chunk[i];
        sent += (size_t)n;
        CHECK(sent < 64 << 20);
    }
    CHECK(errno == EAGAIN);
    note("buffered %zu bytes", sent);
    struct pollfd out = {.fd = p[0], .events = POLLOUT};
    CHECK(poll(&out, 1, 0) == 0);
    int ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    CHECK(epoll_wait(ep, &event, 1, 0) == 0);
    say("full: EAGAIN, not writable");

    while (received < sent) {
        n = read(p[1], chunk, sizeof chunk);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            received_sum += (unsigned char)chunk[i];
        received += (size_t)n;
        stalls++;
    }
    CHECK(stalls > 1);
    CHECK(received_sum == sent_sum);
    CHECK(epoll_wait(ep, &event, 1, -1) == 1 && (event.events & EPOLLOUT));
    CHECK(poll(&out, 1, -1) == 1 && out.revents == POLLOUT);
    write_all(p[0], "more", 4);
    expect_text(p[1], "more");
    say("drained: writable, all bytes there");
    return 0;
}
