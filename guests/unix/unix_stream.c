/* UNIX streams by path and by abstract name: names, errors, the inode, backlog, half-close, the effect of closing a listener.
 *
 * expect: same
 */
#include "unix.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

static char path[64];

static void *connect_later(void *arg)
{
    int fd = unix_connect(SOCK_STREAM, path);
    write_all(fd, "late", 4);
    (void)arg;
    return (void *)(intptr_t)fd;
}

static void names(int fd, const char *own, const char *peer)
{
    struct sockaddr_un address, wanted;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    CHECK(length == (own ? unix_address(own, &wanted) : 2) && address.sun_family == AF_UNIX);
    CHECK(!own || memcmp(&address, &wanted, length) == 0);
    length = sizeof address;
    CHECK(getpeername(fd, (struct sockaddr *)&address, &length) == 0);
    CHECK(length == (peer ? unix_address(peer, &wanted) : 2));
    CHECK(!peer || memcmp(&address, &wanted, length) == 0);
}

int main(void)
{
    struct stat st;
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    char buffer[64], other[80];
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    snprintf(path, sizeof path, "/mnt/socket");
    snprintf(other, sizeof other, "%s.moved", path);

    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(try_connect(fd, path), ENOENT);
    CHECK_ERRNO(try_connect(fd, "/etc/hostname/x"), ENOTDIR);
    CHECK_ERRNO(try_connect(fd, "/etc/passwd"), ECONNREFUSED);
    CHECK_ERRNO(try_connect(fd, "@guest nobody"), ECONNREFUSED);
    CHECK_ERRNO(connect(fd, (struct sockaddr *)&address, 1), EINVAL);
    CHECK_ERRNO(listen(fd, 1), EINVAL);
    CHECK_ERRNO(read(fd, buffer, 1), EINVAL);
    CHECK_ERRNO(write(fd, "x", 1), ENOTCONN);
    CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&address, &length), ENOTCONN);
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, unix_address("/nowhere/at/all", &address)), ENOENT);
    struct pollfd ready = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == (POLLOUT | POLLHUP));
    CHECK(close(fd) == 0);
    say("errors without a listener");

    int bound = unix_bind(SOCK_STREAM, path);
    CHECK(stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0755);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(try_connect(fd, path), ECONNREFUSED);
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&address, unix_address(path, &address)), EADDRINUSE);
    CHECK_ERRNO(bind(bound, (struct sockaddr *)&address, unix_address("@another", &address)), EINVAL);
    CHECK(listen(bound, 1) == 0);
    int packets = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_ERRNO(try_connect(packets, path), EPROTOTYPE);
    close(packets);
    CHECK(try_connect(fd, path) == 0);
    CHECK_ERRNO(try_connect(fd, path), EISCONN);
    CHECK_ERRNO(try_connect(bound, path), EINVAL);
    /* The backlog, and one more. */
    int second = unix_connect(SOCK_STREAM, path);
    int third = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK_ERRNO(try_connect(third, path), EAGAIN);
    write_all(fd, "early", 5);
    length = sizeof address;
    int server = accept(bound, (struct sockaddr *)&address, &length);
    CHECK(server >= 0 && length == 2 && address.sun_family == AF_UNIX);
    expect_text(server, "early");
    names(server, path, NULL);
    names(fd, NULL, path);
    CHECK(try_connect(third, path) == 0);
    say("bound, connected, accepted; backlog");

    /* A client that waits for room gets in when another one is accepted. */
    pthread_t waiter = spawn(connect_later, NULL);
    sleep_ms(20);
    int accepted[3];
    for (int i = 0; i < 3; i++)
        CHECK((accepted[i] = accept(bound, NULL, NULL)) >= 0);
    expect_text(accepted[2], "late");
    close((int)(intptr_t)join(waiter));
    set_nonblocking(bound);
    CHECK_ERRNO(accept(bound, NULL, NULL), EAGAIN);
    say("a connect that waited");

    /* The inode counts, not the path. */
    CHECK(rename(path, other) == 0);
    int moved = unix_connect(SOCK_STREAM, other);
    int probe = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(try_connect(probe, path), ENOENT);
    CHECK(unlink(other) == 0);
    int again = unix_listen(SOCK_STREAM, path, 5);
    CHECK(try_connect(probe, path) == 0);
    CHECK(accept4(again, NULL, NULL, SOCK_NONBLOCK) >= 0);
    int before = accept(bound, NULL, NULL);
    CHECK(before >= 0);
    say("renamed and bound anew");

    /* Half-close, end, errors. */
    int n;
    CHECK(write(server, "abc", 3) == 3 && ioctl(fd, FIONREAD, &n) == 0 && n == 3);
    CHECK(shutdown(server, SHUT_WR) == 0);
    CHECK_ERRNO(write(server, "x", 1), EPIPE);
    CHECK(read(fd, buffer, sizeof buffer) == 3 && read(fd, buffer, sizeof buffer) == 0);
    CHECK(write(fd, "to the end", 10) == 10);
    CHECK(close(server) == 0);
    CHECK_ERRNO(write(fd, "x", 1), EPIPE);
    CHECK_ERRNO(read(fd, buffer, 1), ECONNRESET);
    CHECK(read(fd, buffer, 1) == 0);
    ready.fd = fd;
    CHECK(poll(&ready, 1, 0) == 1 && (ready.revents & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP));
    names(fd, NULL, path);
    CHECK_ERRNO(sendto(probe, "x", 1, 0, (struct sockaddr *)&address, unix_address(path, &address)), EISCONN);
    CHECK_ERRNO(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &n, sizeof n), EOPNOTSUPP);
    say("ends");

    /* A listener that closes resets connections that it has not accepted. */
    int unaccepted = unix_connect(SOCK_STREAM, path);
    CHECK(close(again) == 0);
    CHECK_ERRNO(read(unaccepted, buffer, 1), ECONNRESET);
    CHECK_ERRNO(try_connect(third, path), ECONNREFUSED);
    int refused = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(try_connect(refused, path), ECONNREFUSED);
    CHECK(unlink(path) == 0);
    CHECK_ERRNO(try_connect(refused, path), ENOENT);
    CHECK(close(moved) == 0 && close(second) == 0);
    say("listener closed");

    /* Abstract names are bytes, and go with their socket. */
    int abstract = unix_listen(SOCK_STREAM, "@guest abstract", 2);
    int client = unix_connect(SOCK_STREAM, "@guest abstract");
    server = accept(abstract, NULL, NULL);
    names(client, NULL, "@guest abstract");
    CHECK_ERRNO(try_connect(refused, "@guest abstrac"), ECONNREFUSED);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP}, got;
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, server, &event) == 0);
    write_all(client, "1", 1);
    CHECK(epoll_wait(epoll, &got, 1, -1) == 1 && got.events == EPOLLIN);
    CHECK(close(client) == 0);
    expect_text(server, "1");
    CHECK(epoll_wait(epoll, &got, 1, -1) == 1 && got.events == (EPOLLIN | EPOLLRDHUP | EPOLLHUP));
    CHECK(close(abstract) == 0);
    CHECK(close(unix_bind(SOCK_STREAM, "@guest abstract")) == 0);
    int automatic = socket(AF_UNIX, SOCK_STREAM, 0);
    address.sun_family = AF_UNIX;
    CHECK(bind(automatic, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0);
    length = sizeof address;
    CHECK(getsockname(automatic, (struct sockaddr *)&address, &length) == 0 && length == 8 && address.sun_path[0] == 0);
    say("abstract and automatic names");
    return 0;
}
