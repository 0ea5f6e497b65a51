/* Groups (multicast) on the loopback interface: joining, leaving, receivers, options.
 *
 * expect: same
 */
#include "guest.h"
#include <net/if.h>
#include <poll.h>

static struct sockaddr_in group(const char *address, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    return at;
}

static int hearer(int port, const char *address)
{
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in at = group(address, port);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static int change(int fd, int name, const char *address, const char *by)
{
    struct ip_mreq request = {.imr_multiaddr = group(address, 0).sin_addr, .imr_interface = group(by, 0).sin_addr};
    return setsockopt(fd, IPPROTO_IP, name, &request, sizeof request);
}

static int option(int fd, int name)
{
    int value = -7;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, IPPROTO_IP, name, &value, &length) == 0);
    return value;
}

/* Datagrams of this machine: a published port may receive others, too. */
static ssize_t hear_from(int fd, char *buffer, struct sockaddr_in *from)
{
    for (;;) {
        socklen_t length = sizeof *from;
        ssize_t n = recvfrom(fd, buffer, 16, 0, (struct sockaddr *)from, &length);
        if (n < 0 || from->sin_addr.s_addr == htonl(INADDR_LOOPBACK))
            return n;
    }
}

static ssize_t hear(int fd, char *buffer)
{
    struct sockaddr_in from;
    return hear_from(fd, buffer, &from);
}

int main(void)
{
    const char *here = "127.0.0.1", *one = "239.1.2.3", *two = "239.1.2.4";
    char buffer[16];
    int value, first = hearer(0, "0.0.0.0");
    int port = local_port(first);
    int second = hearer(port, "0.0.0.0"), bound = hearer(port, one);
    CHECK(change(first, IP_ADD_MEMBERSHIP, one, here) == 0);
    CHECK_ERRNO(change(first, IP_ADD_MEMBERSHIP, one, here), EADDRINUSE);
    CHECK_ERRNO(change(first, IP_ADD_MEMBERSHIP, "10.1.2.3", here), EINVAL);
    CHECK_ERRNO(change(first, IP_ADD_MEMBERSHIP, two, "203.0.113.77"), ENODEV);
    CHECK_ERRNO(change(first, IP_DROP_MEMBERSHIP, two, here), EADDRNOTAVAIL);
    CHECK_ERRNO(setsockopt(first, IPPROTO_IP, IP_ADD_MEMBERSHIP, &value, sizeof value), EINVAL);
    say("joined");

    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(option(sender, IP_MULTICAST_TTL) == 1 && option(sender, IP_MULTICAST_LOOP) == 1 && option(sender, IP_MULTICAST_ALL) == 1);
    unsigned char byte = 4;
    CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_TTL, &byte, 1) == 0 && option(sender, IP_MULTICAST_TTL) == 4);
    value = 256;
    CHECK_ERRNO(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_TTL, &value, sizeof value), EINVAL);
    struct in_addr by = group(here, 0).sin_addr, elsewhere = group("203.0.113.77", 0).sin_addr;
    CHECK_ERRNO(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &elsewhere, sizeof elsewhere), EADDRNOTAVAIL);
    CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0);
    CHECK(option(sender, IP_MULTICAST_IF) == (int)by.s_addr);
    say("options");

    /* All sockets bound there receive it, whichever of them has joined. */
    struct sockaddr_in to = group(one, port), from;
    CHECK(sendto(sender, "hello", 5, 0, (struct sockaddr *)&to, sizeof to) == 5);
    CHECK(hear_from(first, buffer, &from) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && ntohs(from.sin_port) == local_port(sender));
    CHECK(hear(second, buffer) == 5 && hear(bound, buffer) == 5);
    CHECK_ERRNO(hear(second, buffer), EAGAIN);
    say("one for all");

    value = 0;
    CHECK(setsockopt(second, IPPROTO_IP, IP_MULTICAST_ALL, &value, sizeof value) == 0);
    CHECK(sendto(sender, "again", 5, 0, (struct sockaddr *)&to, sizeof to) == 5);
    CHECK(hear(first, buffer) == 5);
    CHECK_ERRNO(hear(second, buffer), EAGAIN);
    CHECK(hear(bound, buffer) == 5);
    to = group(two, port);
    CHECK(sendto(sender, "nobody", 6, 0, (struct sockaddr *)&to, sizeof to) == 6);
    CHECK_ERRNO(hear(first, buffer), EAGAIN);

    /* By number; leaving, and closing. */
    struct ip_mreqn numbered = {.imr_multiaddr = group(two, 0).sin_addr, .imr_ifindex = 1};
    CHECK(setsockopt(second, IPPROTO_IP, IP_ADD_MEMBERSHIP, &numbered, sizeof numbered) == 0);
    CHECK(sendto(sender, "two", 3, 0, (struct sockaddr *)&to, sizeof to) == 3);
    CHECK(hear(second, buffer) == 3 && hear(first, buffer) == 3);
    CHECK_ERRNO(hear(bound, buffer), EAGAIN);
    CHECK(setsockopt(second, IPPROTO_IP, IP_DROP_MEMBERSHIP, &numbered, sizeof numbered) == 0);
    CHECK(change(bound, IP_ADD_MEMBERSHIP, two, here) == 0 && close(bound) == 0);
    CHECK(sendto(sender, "two", 3, 0, (struct sockaddr *)&to, sizeof to) == 3);
    CHECK_ERRNO(hear(first, buffer), EAGAIN);
    CHECK(change(first, IP_DROP_MEMBERSHIP, one, here) == 0);
    say("left");

    /* A connected sender, and the other way to join. */
    struct group_req request = {.gr_interface = 1};
    to = group(one, port);
    memcpy(&request.gr_group, &to, sizeof to);
    CHECK(setsockopt(first, IPPROTO_IP, MCAST_JOIN_GROUP, &request, sizeof request) == 0);
    CHECK(connect(sender, (struct sockaddr *)&to, sizeof to) == 0 && send(sender, "c", 1, 0) == 1);
    CHECK(hear(first, buffer) == 1);
    CHECK(setsockopt(first, IPPROTO_IP, MCAST_LEAVE_GROUP, &request, sizeof request) == 0);
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(change(stream, IP_ADD_MEMBERSHIP, one, here), EPROTO);
    say("connected");
    return 0;
}
