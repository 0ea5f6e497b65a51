/* UNIX datagrams and packets: names, replies, message boundaries, queues that fill, peers that go.
 *
 * expect: same
 */
#include "unix.h"
#include <poll.h>
#include <sys/ioctl.h>

static char path[64];

static void *send_three(void *arg)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t length = unix_address(path, &address);
    for (int i = 0; i < 600; i++)
        CHECK(sendto(fd, &i, sizeof i, 0, (struct sockaddr *)&address, length) == sizeof i);
    close(fd);
    (void)arg;
    return NULL;
}

int main(void)
{
    struct sockaddr_un address, from;
    socklen_t length, from_length = sizeof from;
    char buffer[64];
    int n, p[2];
    signal(SIGPIPE, SIG_IGN);
    snprintf(path, sizeof path, "/mnt/socket");

    int server = unix_bind(SOCK_DGRAM, path), client = unix_bind(SOCK_DGRAM, "@guest client");
    length = unix_address(path, &address);
    CHECK(sendto(client, "question", 8, 0, (struct sockaddr *)&address, length) == 8);
    CHECK(recvfrom(server, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &from_length) == 8);
    CHECK(from_length == 2 + 13 + OWN_LENGTH && from.sun_path[0] == 0 && memcmp(from.sun_path + 1, "guest client", 12) == 0);
    CHECK(sendto(server, "answer", 6, 0, (struct sockaddr *)&from, from_length) == 6);
    from_length = sizeof from;
    CHECK(recvfrom(client, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &from_length) == 6);
    CHECK(from_length == length && strcmp(from.sun_path, path) == 0);
    int anonymous = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_ERRNO(send(anonymous, "x", 1, 0), ENOTCONN);
    CHECK_ERRNO(try_connect(anonymous, "@guest nobody"), ECONNREFUSED);
    CHECK_ERRNO(listen(anonymous, 1), EOPNOTSUPP);
    CHECK(sendto(anonymous, "a", 1, 0, (struct sockaddr *)&address, length) == 1);
    CHECK(sendto(anonymous, "", 0, 0, (struct sockaddr *)&address, length) == 0);
    CHECK(ioctl(server, FIONREAD, &n) == 0 && n == 1);
    from_length = sizeof from;
    CHECK(recvfrom(server, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &from_length) == 1 && from_length == 0);
    CHECK(recv(server, buffer, sizeof buffer, 0) == 0);
    CHECK_ERRNO(recv(server, buffer, sizeof buffer, MSG_DONTWAIT), EAGAIN);
    say("names and replies");

    /* A connected socket receives from its peer only. */
    CHECK(try_connect(server, "@guest client") == 0);
    CHECK_ERRNO(sendto(anonymous, "x", 1, 0, (struct sockaddr *)&address, length), EPERM);
    CHECK(try_connect(client, path) == 0);
    CHECK(send(client, "abcdef", 6, 0) == 6 && send(client, "next", 4, 0) == 4);
    CHECK(recv(server, buffer, 2, MSG_PEEK) == 2);
    CHECK(recv(server, buffer, 2, MSG_TRUNC) == 6 && memcmp(buffer, "ab", 2) == 0);
    CHECK(recv(server, buffer, sizeof buffer, 0) == 4);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(server, &none, sizeof none) == 0);
    CHECK(close(client) == 0);
    say("connected");

    /* A full queue: EAGAIN, not writable, and a blocked sender goes on when there is room. */
    set_nonblocking(anonymous);
    CHECK(try_connect(anonymous, path) == 0);
    struct pollfd ready = {.fd = anonymous, .events = POLLOUT};
    CHECK(poll(&ready, 1, 0) == 1);
    for (n = 0; send(anonymous, "x", 1, 0) == 1; n++)
        CHECK(n < 2000);
    CHECK(errno == EAGAIN && n >= 1);
    CHECK(poll(&ready, 1, 0) == 0);
    CHECK(recv(server, buffer, 1, 0) == 1);
    CHECK(poll(&ready, 1, -1) == 1 && ready.revents == POLLOUT);
    while (recv(server, buffer, 1, MSG_DONTWAIT) == 1)
        ;
    pthread_t sender = spawn(send_three, NULL);
    for (int i = 0; i < 600; i++)
        CHECK(recv(server, &n, sizeof n, 0) == sizeof n && n == i);
    join(sender);
    say("full queues");

    CHECK(close(server) == 0);
    CHECK_ERRNO(send(anonymous, "x", 1, 0), ECONNREFUSED);
    CHECK_ERRNO(send(anonymous, "x", 1, 0), ENOTCONN);
    CHECK_ERRNO(try_connect(anonymous, path), ECONNREFUSED);
    CHECK(unlink(path) == 0);
    CHECK_ERRNO(try_connect(anonymous, path), ENOENT);
    say("peer gone");

    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0);
    CHECK(write(p[0], "one", 3) == 3 && write(p[0], "two", 3) == 3);
    CHECK(read(p[1], buffer, sizeof buffer) == 3 && read(p[1], buffer, 2) == 2);
    CHECK(shutdown(p[1], SHUT_RD) == 0);
    CHECK(read(p[1], buffer, 1) == 0);
    CHECK_ERRNO(write(p[0], "x", 1), EPIPE);
    CHECK(close(p[0]) == 0);
    CHECK_ERRNO(write(p[1], "x", 1), ECONNREFUSED);
    CHECK(close(p[1]) == 0);
    static char large[300000];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0);
    CHECK_ERRNO(send(p[0], large, sizeof large, 0), EMSGSIZE);
    CHECK(send(p[0], large, 100000, 0) == 100000 && recv(p[1], large, sizeof large, 0) == 100000);
    set_nonblocking(p[0]);
    for (n = 0; send(p[0], large, 10000, 0) == 10000; n++)
        CHECK(n < 100);
    CHECK(errno == EAGAIN && n > 5);
    close(p[0]);
    close(p[1]);
    say("datagram pair");

    /* Packets: a connection with message boundaries. */
    int listener = unix_listen(SOCK_SEQPACKET, "@guest packets", 3);
    int packet = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_ERRNO(send(packet, "x", 1, 0), ENOTCONN);
    CHECK_ERRNO(recv(packet, buffer, 1, 0), ENOTCONN);
    CHECK(try_connect(packet, "@guest packets") == 0);
    int peer = accept(listener, NULL, NULL);
    CHECK(peer >= 0);
    CHECK(send(packet, "first", 5, 0) == 5 && send(packet, "second", 6, 0) == 6);
    struct iovec part = {buffer, 3};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(recvmsg(peer, &message, 0) == 3 && (message.msg_flags & MSG_TRUNC));
    CHECK(ioctl(peer, FIONREAD, &n) == 0 && n == 6);
    CHECK(recv(peer, buffer, sizeof buffer, 0) == 6);
    CHECK(send(peer, "unread", 6, 0) == 6);
    CHECK(close(peer) == 0);
    CHECK(recv(packet, buffer, sizeof buffer, 0) == 6 && recv(packet, buffer, sizeof buffer, 0) == 0);
    CHECK_ERRNO(send(packet, "x", 1, 0), EPIPE);
    CHECK(close(packet) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) == 0);
    CHECK(send(p[0], "left", 4, 0) == 4);
    CHECK(close(p[1]) == 0);
    CHECK_ERRNO(recv(p[0], buffer, 1, 0), ECONNRESET);
    say("packets");
    return 0;
}
