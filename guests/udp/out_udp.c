/* Datagrams to another host: answered, lost, refused; by sockets that are connected and that are not.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

static int datagram_socket(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static void send_to(int fd, int port, const void *data, size_t length)
{
    struct sockaddr_in to = outside(port);
    CHECK(sendto(fd, data, length, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)length);
}

static void expect_from(int fd, int port, const void *data, size_t length)
{
    static char buffer[70000];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    CHECK(recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &size) == (ssize_t)length);
    CHECK(memcmp(buffer, data, length) == 0);
    CHECK(ntohl(from.sin_addr.s_addr) == OUTSIDE_HOST && ntohs(from.sin_port) == port);
}

int main(void)
{
    static char largest[65507];
    memset(largest, 'x', sizeof largest);
    int fd = datagram_socket();
    send_to(fd, OUTSIDE_ECHO, "hello", 5);
    send_to(fd, OUTSIDE_ECHO, "", 0);
    send_to(fd, OUTSIDE_ECHO, largest, sizeof largest);
    expect_from(fd, OUTSIDE_ECHO, "hello", 5);
    expect_from(fd, OUTSIDE_ECHO, "", 0);
    expect_from(fd, OUTSIDE_ECHO, largest, sizeof largest);
    struct sockaddr_in to = outside(OUTSIDE_ECHO);
    CHECK_ERRNO(sendto(fd, largest, sizeof largest + 1, 0, (struct sockaddr *)&to, sizeof to), EMSGSIZE);
    say("answers, of 0 and of 65507 bytes");

    /* Not connected: the socket does not learn that one was refused. */
    send_to(fd, 9, "refused", 7);
    send_to(fd, OUTSIDE_SILENT, "lost", 4);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, 20) == 0);
    int port = local_port(fd);
    CHECK(close(fd) == 0);
    note("sent from port %d", port);

    fd = datagram_socket();
    CHECK(outside_start(fd, 9) == 0);
    CHECK(send(fd, "refused", 7, 0) == 7);
    char byte;
    CHECK_ERRNO(recv(fd, &byte, 1, 0), ECONNREFUSED);
    CHECK(outside_start(fd, OUTSIDE_ECHO) == 0);
    CHECK(send(fd, "ab", 2, 0) == 2);
    CHECK(recv(fd, &byte, 1, MSG_TRUNC) == 2 && byte == 'a');
    say("connected: refused, then answered");

    /* From a port of its own choice. */
    CHECK(close(fd) == 0);
    fd = datagram_socket();
    struct sockaddr_storage address;
    socklen_t length = loopback(AF_INET, 0, &address);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    send_to(fd, OUTSIDE_ECHO, "bound", 5);
    expect_from(fd, OUTSIDE_ECHO, "bound", 5);
    CHECK(close(fd) == 0);

    fd = socket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(OUTSIDE_ECHO)};
    memcpy(&mapped.sin6_addr, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x09", 16);
    CHECK(sendto(fd, "mapped", 6, 0, (struct sockaddr *)&mapped, sizeof mapped) == 6);
    char text[16];
    CHECK(recv(fd, text, sizeof text, 0) == 6 && memcmp(text, "mapped", 6) == 0);
    say("from a bound socket and from one of IPv6");
    return 0;
}
