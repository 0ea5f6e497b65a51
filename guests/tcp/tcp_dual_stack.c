/* An IPv6 wildcard listener takes IPv4 clients as mapped addresses, unless IPV6_V6ONLY is set.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    int listener = socket(AF_INET6, SOCK_STREAM, 0), off = 0, value = -1;
    socklen_t length = sizeof value;
    CHECK(listener >= 0);
    CHECK(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0);
    CHECK(getsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &value, &length) == 0);
    CHECK(value == 0);
    CHECK(bind(listener, (struct sockaddr *)&any, sizeof any) == 0);
    CHECK(listen(listener, 5) == 0);

    int client = tcp_connect(AF_INET, local_port(listener));
    struct sockaddr_in6 peer;
    length = sizeof peer;
    int fd = accept(listener, (struct sockaddr *)&peer, &length);
    CHECK(fd >= 0);
    char text[INET6_ADDRSTRLEN];
    CHECK(inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof text) != NULL);
    say("peer %s, mapped %d", text, IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr) != 0);
    CHECK(ntohs(peer.sin6_port) == local_port(client));
    write_all(client, "x", 1);
    expect_text(fd, "x");
    return 0;
}
