/* Non-blocking connections to another host: EINPROGRESS, EALREADY, readiness, SO_ERROR; closed before they are established.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"
#include <sys/epoll.h>

static int start(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    CHECK_ERRNO(outside_start(fd, port), EINPROGRESS);
    return fd;
}

int main(void)
{
    int fd = start(OUTSIDE_HANGS);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&p, 1, 20) == 0);
    CHECK_ERRNO(outside_start(fd, OUTSIDE_HANGS), EALREADY);
    CHECK_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EAGAIN);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&name, &length), ENOTCONN);
    CHECK(shutdown(fd, SHUT_RDWR) == 0);
    CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&name, &length), ENOTCONN);
    CHECK(close(fd) == 0);
    struct timeval limit = {.tv_usec = 10000};
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    CHECK_ERRNO(outside_start(fd, OUTSIDE_HANGS), EINPROGRESS);
    CHECK(close(fd) == 0);
    say("in progress");

    fd = start(OUTSIDE_GREETER);
    p = (struct pollfd){.fd = fd, .events = POLLOUT};
    CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLOUT);
    CHECK(socket_error(fd) == 0);
    CHECK(outside_start(fd, OUTSIDE_GREETER) == 0);
    CHECK_ERRNO(outside_start(fd, OUTSIDE_GREETER), EISCONN);
    p.events = POLLIN;
    CHECK(poll(&p, 1, -1) == 1);
    expect_text(fd, OUTSIDE_GREETING);
    CHECK(poll(&p, 1, -1) == 1 && (p.revents & POLLIN));
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
    CHECK(close(fd) == 0);
    say("connected and greeted");

    fd = start(9);
    p = (struct pollfd){.fd = fd, .events = POLLOUT};
    CHECK(poll(&p, 1, -1) == 1 && (p.revents & POLLERR) && (p.revents & POLLHUP));
    CHECK(socket_error(fd) == ECONNREFUSED && socket_error(fd) == 0);
    CHECK(close(fd) == 0);
    say("refused");

    /* Many at once, in one epoll set; some are closed before they are established. */
    int set = epoll_create1(0), open = 0, greeted = 0, refused = 0;
    CHECK(set >= 0);
    for (int i = 0; i < 30; i++) {
        fd = start(i % 3 == 0 ? 9 : OUTSIDE_GREETER);
        struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        if (i % 5 == 4)
            CHECK(close(fd) == 0);
        else
            open++;
    }
    while (greeted + refused < open) {
        struct epoll_event events[4];
        int n = epoll_wait(set, events, 4, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            fd = events[i].data.fd;
            if (events[i].events & EPOLLERR) {
                CHECK(socket_error(fd) == ECONNREFUSED);
                refused++;
            } else {
                expect_text(fd, OUTSIDE_GREETING);
                greeted++;
            }
            CHECK(close(fd) == 0);
        }
    }
    say("%d greeted, %d refused", greeted, refused);
    return 0;
}
