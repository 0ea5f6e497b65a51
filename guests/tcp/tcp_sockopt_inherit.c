/* An accepted socket inherits its listener's options.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int port, on = 1, value = 0;
    socklen_t length = sizeof value;
    int listener = tcp_listen(AF_INET, &port);
    CHECK(setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    int client = tcp_connect(AF_INET, port);
    int server = accept(listener, NULL, NULL);
    CHECK(client >= 0 && server >= 0);
    CHECK(getsockopt(server, IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0);
    say("accepted TCP_NODELAY %d", value);
    CHECK(getsockopt(server, SOL_SOCKET, SO_KEEPALIVE, &value, &length) == 0);
    say("accepted SO_KEEPALIVE %d", value);
    CHECK(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0);
    say("client TCP_NODELAY %d", value);
    CHECK(getsockopt(server, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0);
    say("accepted SO_ACCEPTCONN %d", value);
    return 0;
}
