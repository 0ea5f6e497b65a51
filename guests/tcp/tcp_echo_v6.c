/* The same calls over IPv6, with send and recv, and two connections one after the other.
 *
 * expect: same
 */
#include "guest.h"

static void *serve(void *arg)
{
    int listener = *(int *)arg;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in6 peer;
        socklen_t length = sizeof peer;
        int fd = accept(listener, (struct sockaddr *)&peer, &length);
        CHECK(fd >= 0);
        CHECK(length == sizeof peer && peer.sin6_family == AF_INET6);
        CHECK(IN6_IS_ADDR_LOOPBACK(&peer.sin6_addr));
        CHECK(peer.sin6_port != 0);
        char buffer[64];
        ssize_t n;
        while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0)
            CHECK(send(fd, buffer, (size_t)n, 0) == n);
        CHECK(n == 0);
        CHECK(close(fd) == 0);
    }
    return NULL;
}

int main(void)
{
    int port;
    int listener = tcp_listen(AF_INET6, &port);
    pthread_t server = spawn(serve, &listener);
    for (int i = 0; i < 2; i++) {
        int fd = tcp_connect(AF_INET6, port);
        CHECK(send(fd, "six", 3, 0) == 3);
        expect_text(fd, "six");
        say("connection %d echoed", i);
        CHECK(close(fd) == 0);
    }
    join(server);
    return 0;
}
