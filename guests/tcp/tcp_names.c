/* getsockname and getpeername: both ends agree; truncation reports the full length; ENOTCONN, EBADF, ENOTSOCK.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int families[] = {AF_INET, AF_INET6};
    for (int i = 0; i < 2; i++) {
        int port;
        int listener = tcp_listen(families[i], &port);
        int client = tcp_connect(families[i], port);
        struct sockaddr_storage from_accept, a, b;
        socklen_t la = sizeof from_accept;
        memset(&from_accept, 0, sizeof from_accept);
        int server = accept(listener, (struct sockaddr *)&from_accept, &la);
        CHECK(server >= 0);
        CHECK(local_port(server) == port);
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        socklen_t lb = sizeof a;
        CHECK(getsockname(client, (struct sockaddr *)&a, &lb) == 0 && lb == la);
        CHECK(memcmp(&a, &from_accept, la) == 0);
        lb = sizeof b;
        CHECK(getpeername(server, (struct sockaddr *)&b, &lb) == 0 && lb == la);
        CHECK(memcmp(&b, &from_accept, la) == 0);
        lb = sizeof a;
        CHECK(getpeername(client, (struct sockaddr *)&a, &lb) == 0);
        lb = sizeof b;
        CHECK(getsockname(server, (struct sockaddr *)&b, &lb) == 0);
        CHECK(memcmp(&a, &b, lb) == 0);
        lb = sizeof(sa_family_t);
        CHECK(getsockname(client, (struct sockaddr *)&a, &lb) == 0 && lb == la);
        CHECK_ERRNO(getpeername(listener, (struct sockaddr *)&a, &lb), ENOTCONN);
        CHECK(local_port(client) != port);
        say("family %s: length %u, both ends agree", i ? "inet6" : "inet", la);
    }
    int fresh = socket(AF_INET, SOCK_STREAM, 0), fds[2];
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    CHECK(getsockname(fresh, (struct sockaddr *)&name, &length) == 0);
    say("unbound: family %d port %d address %08x", name.sin_family == AF_INET, name.sin_port, name.sin_addr.s_addr);
    CHECK_ERRNO(getpeername(fresh, (struct sockaddr *)&name, &length), ENOTCONN);
    CHECK_ERRNO(getsockname(-1, (struct sockaddr *)&name, &length), EBADF);
    CHECK(pipe(fds) == 0);
    CHECK_ERRNO(getsockname(fds[0], (struct sockaddr *)&name, &length), ENOTSOCK);
    return 0;
}
