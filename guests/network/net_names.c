/* getaddrinfo, gethostbyname, getservbyname, getnameinfo: numbers, the hosts file, and everything else that needs no name server.
 *
 * expect: same
 */
#include "guest.h"
#include <netdb.h>

static int look(const char *node, const char *service, int family, int type, int flags, char *out, size_t room)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = type, .ai_flags = flags}, *list = NULL;
    int rc = getaddrinfo(node, service, &hints, &list);
    if (rc == 0) {
        char host[64], port[16];
        CHECK(list && getnameinfo(list->ai_addr, list->ai_addrlen, host, sizeof host, port, sizeof port,
                                  NI_NUMERICHOST | NI_NUMERICSERV) == 0);
        snprintf(out, room, "%s %s", host, port);
        freeaddrinfo(list);
    }
    return rc;
}

int main(void)
{
    char text[100];
    CHECK(look("127.0.0.1", "80", AF_INET, SOCK_STREAM, AI_NUMERICHOST | AI_NUMERICSERV, text, sizeof text) == 0);
    say("%s", text);
    CHECK(look("::1", "443", AF_UNSPEC, SOCK_STREAM, AI_NUMERICHOST, text, sizeof text) == 0);
    say("%s", text);
    CHECK(look(NULL, "8080", AF_INET, SOCK_STREAM, AI_PASSIVE, text, sizeof text) == 0);
    say("%s", text);
    CHECK(look("localhost", "http", AF_INET, SOCK_STREAM, 0, text, sizeof text) == 0);
    say("%s", text);
    CHECK(look("localhost", "53", AF_INET, SOCK_DGRAM, AI_ADDRCONFIG, text, sizeof text) == 0);
    say("%s", text);
    CHECK(look("not a number", "80", AF_INET, SOCK_STREAM, AI_NUMERICHOST, text, sizeof text) == EAI_NONAME);
    CHECK(look("127.0.0.1", "no such service", AF_INET, SOCK_STREAM, 0, text, sizeof text) == EAI_SERVICE);
    struct hostent *host = gethostbyname("localhost");
    CHECK(host && host->h_addrtype == AF_INET && memcmp(host->h_addr_list[0], "\177\0\0\1", 4) == 0);
    say("%s", inet_ntoa(*(struct in_addr *)host->h_addr_list[0]));
    return 0;
}
