/* Edges and their order: a file that is in a set twice, the two ends of a UNIX socket that is shut, a connection that succeeds at once, one that was
 * refused; and a TCP socket that was shut before it was connected.
 *
 * expect: same
 */
#include "guest.h"
#include "loopback.h"
#include <sys/epoll.h>
#include <sys/un.h>

static int set;

static void add(int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* The ready files, which must be these in this order. */
static void ready(const char *when, int count, int first, int second)
{
    struct epoll_event got[8];
    int n = epoll_wait(set, got, 8, 0);
    for (int i = 0; i < n; i++)
        say("%s: %s, %x", when, got[i].data.fd == first ? "first" : "second", got[i].events);
    CHECK(n == count);
    CHECK(n < 1 || got[0].data.fd == first);
    CHECK(n < 2 || got[1].data.fd == second);
}

static void begin(void)
{
    set = epoll_create1(0);
    CHECK(set >= 0);
}

static void end(int a, int b, int c)
{
    for (int i = 0; i < 3; i++)
        CHECK(close((int[]){a, b, c}[i]) == 0);
    CHECK(close(set) == 0);
}

static int tcp(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    return fd;
}

static int connects_to(int fd, int port)
{
    struct sockaddr_storage address;
    socklen_t length = loopback(AF_INET, port, &address);
    int result = connect(fd, (struct sockaddr *)&address, length);
    int error = errno;
    arrived();
    errno = error;
    return result;
}

/* The newest registration of a file is reported first. */
static void twice(void)
{
    int ends[2];
    begin();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int copy = dup(ends[0]);
    add(ends[0]);
    add(copy);
    ready("added", 2, ends[0], copy);
    write_all(ends[1], "x", 1);
    ready("written", 2, copy, ends[0]);
    end(ends[0], ends[1], copy);
}

/* An end that is shut is reported before its peer. */
static void shut(void)
{
    int ends[2];
    begin();
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    add(ends[0]);
    add(ends[1]);
    ready("added", 2, ends[0], ends[1]);
    CHECK(shutdown(ends[1], SHUT_RDWR) == 0);
    ready("shut", 2, ends[1], ends[0]);
    end(ends[0], ends[1], dup(ends[0]));
}

/* A socket in a set reports that it is connected, also when that happens at once. */
static void connected(void)
{
    int port, listener = tcp_listen(AF_INET, &port), fd = tcp();
    begin();
    add(fd);
    ready("added", 1, fd, -1);
    CHECK_ERRNO(connects_to(fd, port), EINPROGRESS);
    ready("connected", 1, fd, -1);
    ready("again", 0, -1, -1);
    end(fd, listener, dup(fd));
}

/* Reading the outcome of a refused connection resets the socket's state, which is an edge. */
static void refused(void)
{
    int port, listener = tcp_listen(AF_INET, &port), fd = tcp();
    CHECK(shutdown(listener, SHUT_RD) == 0);
    begin();
    CHECK_ERRNO(connects_to(fd, port), EINPROGRESS);
    add(fd);
    ready("refused", 1, fd, -1);
    CHECK_ERRNO(connects_to(fd, port), ECONNREFUSED);
    ready("asked", 1, fd, -1);
    end(fd, listener, dup(fd));
}

/* It has sent no end, so later data do not reset it. */
static void shut_before(void)
{
    int port, listener = tcp_listen(AF_INET, &port), fd = tcp();
    char bytes[8];
    CHECK_ERRNO(shutdown(fd, SHUT_RDWR), ENOTCONN);
    CHECK_ERRNO(connects_to(fd, port), EINPROGRESS);
    int peer = accept(listener, NULL, NULL);
    CHECK(peer >= 0);
    write_all(peer, "hello", 5);
    arrived();
    CHECK_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    say("received %zd", recv(fd, bytes, sizeof bytes, 0));
    CHECK(send(peer, "more", 4, MSG_NOSIGNAL) == 4);
    begin();
    end(fd, peer, listener);
}

int main(void)
{
    loopback_begin();
    twice();
    shut();
    connected();
    refused();
    shut_before();
    return 0;
}
