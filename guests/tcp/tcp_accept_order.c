/* Connections that wait in the backlog come out of accept in the order in which they connected, with their data.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int port, clients[8];
    int listener = tcp_listen(AF_INET, &port);
    for (int i = 0; i < 8; i++) {
        clients[i] = tcp_connect(AF_INET, port);
        char c = (char)('a' + i);
        write_all(clients[i], &c, 1);
    }
    CHECK(close(clients[3]) == 0); /* Closed before it was accepted: its data is still there. */
    for (int i = 0; i < 8; i++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int fd = accept(listener, (struct sockaddr *)&peer, &length);
        CHECK(fd >= 0);
        char c, more;
        read_exact(fd, &c, 1);
        if (i == 3)
            CHECK(read(fd, &more, 1) == 0);
        else
            CHECK(ntohs(peer.sin_port) == local_port(clients[i]));
        say("accepted %c", c);
        CHECK(close(fd) == 0);
    }
    return 0;
}
