/* UDP over loopback, both families: names, automatic ports, truncation, peeking, empty datagrams, connected filters, EMSGSIZE.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/ioctl.h>

static int bound(int family, int *port)
{
    struct sockaddr_storage address;
    int fd = socket(family, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&address, loopback(family, 0, &address)) == 0);
    *port = local_port(fd);
    CHECK(*port > 0);
    return fd;
}

static void both_ways(int family)
{
    struct sockaddr_storage to, from;
    socklen_t length, from_length = sizeof from;
    char buffer[64];
    int port, n, type;
    int server = bound(family, &port);
    int client = socket(family, SOCK_DGRAM, IPPROTO_UDP);
    CHECK(client >= 0 && local_port(client) == 0);
    length = loopback(family, port, &to);
    CHECK_ERRNO(send(client, "x", 1, 0), EDESTADDRREQ);
    CHECK_ERRNO(recv(client, buffer, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(sendto(client, "question", 8, 0, (struct sockaddr *)&to, length) == 8);
    int client_port = local_port(client);
    CHECK(client_port > 0);
    CHECK(recvfrom(server, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &from_length) == 8);
    CHECK(from_length == length && memcmp(buffer, "question", 8) == 0);
    CHECK(sendto(server, "answer", 6, 0, (struct sockaddr *)&from, from_length) == 6);
    CHECK(recv(client, buffer, sizeof buffer, 0) == 6 && memcmp(buffer, "answer", 6) == 0);

    CHECK(sendto(client, "abcdef", 6, 0, (struct sockaddr *)&to, length) == 6);
    CHECK(sendto(client, "", 0, 0, (struct sockaddr *)&to, length) == 0);
    CHECK(sendto(client, "next", 4, 0, (struct sockaddr *)&to, length) == 4);
    CHECK(ioctl(server, FIONREAD, &n) == 0 && n == 6);
    CHECK(recv(server, buffer, 3, MSG_PEEK) == 3 && memcmp(buffer, "abc", 3) == 0);
    CHECK(recv(server, buffer, 2, MSG_PEEK | MSG_TRUNC) == 6);
    struct iovec part = {buffer, 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
    CHECK(recvmsg(server, &message, 0) == 4 && (message.msg_flags & MSG_TRUNC) && message.msg_namelen == length);
    CHECK(recv(server, buffer, sizeof buffer, 0) == 0);
    CHECK(read(server, buffer, sizeof buffer) == 4 && memcmp(buffer, "next", 4) == 0);
    say("family %s: both ways, cut, peeked, empty", family == AF_INET ? "v4" : "v6");

    /* A connected socket receives from its peer only. */
    int other_port;
    int other = bound(family, &other_port);
    CHECK(connect(client, (struct sockaddr *)&to, length) == 0);
    from_length = sizeof from;
    CHECK(getpeername(client, (struct sockaddr *)&from, &from_length) == 0 && from_length == length);
    length = loopback(family, client_port, &to);
    CHECK(sendto(other, "no", 2, 0, (struct sockaddr *)&to, length) == 2);
    CHECK(sendto(server, "yes", 3, 0, (struct sockaddr *)&to, length) == 3);
    CHECK(recv(client, buffer, sizeof buffer, 0) == 3 && memcmp(buffer, "yes", 3) == 0);
    CHECK(write(client, "by write", 8) == 8 && recv(server, buffer, sizeof buffer, 0) == 8);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(client, &none, sizeof none) == 0);
    CHECK_ERRNO(getpeername(client, (struct sockaddr *)&from, &from_length), ENOTCONN);
    CHECK_ERRNO(send(client, "x", 1, 0), EDESTADDRREQ);

    length = sizeof type;
    CHECK(getsockopt(client, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_DGRAM);
    CHECK(getsockopt(client, SOL_SOCKET, SO_PROTOCOL, &type, &length) == 0 && type == IPPROTO_UDP);
    CHECK_ERRNO(listen(client, 1), EOPNOTSUPP);
    CHECK_ERRNO(accept(client, NULL, NULL), EOPNOTSUPP);
    CHECK(close(client) == 0 && close(other) == 0);

    /* No listener any more: an error comes back to a connected sender. */
    int late = socket(family, SOCK_DGRAM, 0);
    length = loopback(family, port, &to);
    CHECK(connect(late, (struct sockaddr *)&to, length) == 0);
    CHECK(close(server) == 0);
    CHECK(send(late, "lost", 4, 0) == 4);
    struct pollfd error = {.fd = late, .events = POLLIN};
    CHECK(poll(&error, 1, -1) == 1 && (error.revents & POLLERR));
    CHECK_ERRNO(recv(late, buffer, 1, 0), ECONNREFUSED);
    CHECK_ERRNO(recv(late, buffer, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(send(late, "lost", 4, 0) == 4);
    /* Natively at once; a datagram to a port outside the server leaves it first. */
    CHECK(poll(&error, 1, -1) == 1 && (error.revents & POLLERR));
    CHECK_ERRNO(send(late, "lost", 4, 0), ECONNREFUSED);
    CHECK(shutdown(late, SHUT_WR) == 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(send(late, "x", 1, 0), EPIPE);
    CHECK(close(late) == 0);
    int fresh = socket(family, SOCK_DGRAM, 0);
    CHECK_ERRNO(shutdown(fresh, SHUT_RDWR), ENOTCONN);
    close(fresh);
    say("connected: a filter, refused, shut down");
}

int main(void)
{
    both_ways(AF_INET);
    both_ways(AF_INET6);

    int port, a = bound(AF_INET, &port), b = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_storage address;
    socklen_t length = loopback(AF_INET, port, &address);
    CHECK_ERRNO(bind(a, (struct sockaddr *)&address, length), EINVAL);
    CHECK_ERRNO(bind(b, (struct sockaddr *)&address, length), EADDRINUSE);
    CHECK(setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(setsockopt(b, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(b, (struct sockaddr *)&address, length) == 0);
    /* TCP has ports of its own. */
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    for (int tries = 0; bind(tcp, (struct sockaddr *)&address, length) != 0; tries++) {
        /* Natively another process may have this very port. */
        CHECK(errno == EADDRINUSE && tries < 20);
        int more_port;
        CHECK(bound(AF_INET, &more_port) >= 0);
        ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)more_port);
    }

    static char large[70000];
    CHECK_ERRNO(sendto(a, large, 65508, 0, (struct sockaddr *)&address, length), EMSGSIZE);
    int big_port, big = bound(AF_INET, &big_port);
    length = loopback(AF_INET, big_port, &address);
    CHECK(sendto(a, large, 65507, 0, (struct sockaddr *)&address, length) == 65507);
    CHECK(recv(big, large, sizeof large, 0) == 65507);
    ((struct sockaddr_in *)&address)->sin_port = 0;
    CHECK_ERRNO(sendto(a, "x", 1, 0, (struct sockaddr *)&address, length), EINVAL);
    CHECK_ERRNO(sendto(a, "x", 1, 0, (struct sockaddr *)&address, 7), EINVAL);
    /* The wildcard stands for the loopback interface. */
    ((struct sockaddr_in *)&address)->sin_addr.s_addr = INADDR_ANY;
    ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)big_port);
    CHECK(sendto(a, "any", 3, 0, (struct sockaddr *)&address, length) == 3);
    CHECK(recv(big, large, sizeof large, 0) == 3);
    say("ports, sizes");
    return 0;
}
