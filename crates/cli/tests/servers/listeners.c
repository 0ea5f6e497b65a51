/* Listens as each argument KIND=PORT says, by TCP and UDP, and answers each request with the socket that got it, the client's address
 * and, by TCP, its own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX = 64 };

static struct pollfd polled[MAX];
static const char *names[MAX];
static int udp[MAX], count;

static void listen_at(const char *name, int port)
{
    int v4 = strchr(name, '.') != NULL, one = 1, only = strcmp(name, "both") != 0;
    for (int datagrams = 0; datagrams < 2; datagrams++) {
        struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
        struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
        int s = socket(v4 ? AF_INET : AF_INET6, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
        if (v4)
            inet_pton(AF_INET, name, &a4.sin_addr);
        else if (only && inet_pton(AF_INET6, name, &a6.sin6_addr) != 1)
            exit(3);
        if (!v4 && setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only) != 0)
            exit(4);
        if (setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0)
            exit(5);
        if (bind(s, v4 ? (void *)&a4 : (void *)&a6, v4 ? sizeof a4 : sizeof a6) != 0)
            exit(6);
        if (!datagrams && listen(s, 16) != 0)
            exit(7);
        polled[count] = (struct pollfd){ .fd = s, .events = POLLIN };
        udp[count] = datagrams;
        names[count++] = name;
    }
}

static const char *shown(const struct sockaddr_storage *a, char *text)
{
    const void *ip = a->ss_family == AF_INET ? (void *)&((struct sockaddr_in *)a)->sin_addr
                                             : (void *)&((struct sockaddr_in6 *)a)->sin6_addr;
    return inet_ntop(a->ss_family, ip, text, INET6_ADDRSTRLEN);
}

static void answer(int i)
{
    struct sockaddr_storage peer, local;
    socklen_t peer_length = sizeof peer, local_length = sizeof local;
    char question[256], text[256], one[INET6_ADDRSTRLEN], two[INET6_ADDRSTRLEN];
    if (udp[i]) {
        if (recvfrom(polled[i].fd, question, sizeof question, 0, (void *)&peer, &peer_length) < 0)
            exit(8);
        int n = snprintf(text, sizeof text, "%s %s\n", names[i], shown(&peer, one));
        sendto(polled[i].fd, text, (size_t)n, 0, (void *)&peer, peer_length);
        return;
    }
    int c = accept(polled[i].fd, (void *)&peer, &peer_length);
    if (c < 0 || getsockname(c, (void *)&local, &local_length) != 0)
        exit(9);
    if (read(c, question, sizeof question) > 0) {
        int n = snprintf(text, sizeof text, "%s %s %s\n", names[i], shown(&peer, one), shown(&local, two));
        send(c, text, (size_t)n, MSG_NOSIGNAL);
    }
    close(c);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *at = strchr(argv[i], '=');
        int port = atoi(at + 1);
        *at = 0;
        /* The sockets' addresses, in the order in which they are made; "both" is the wildcard of IPv6 that takes IPv4, too. */
        for (char *name = strtok(argv[i], ","); name; name = strtok(NULL, ","))
            listen_at(name, port);
    }
    for (;;) {
        if (poll(polled, (nfds_t)count, -1) < 0)
            return 2;
        for (int i = 0; i < count; i++)
            if (polled[i].revents)
                answer(i);
    }
}
