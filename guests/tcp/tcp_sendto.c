/* sendto and recvfrom on a connected stream: the address is ignored, the name length comes back zero.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int p[2];
    tcp_pair(p);
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    CHECK(sendto(p[0], "plain", 5, 0, NULL, 0) == 5);
    char buffer[16] = {0};
    CHECK(recvfrom(p[1], buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length) == 5);
    say("recvfrom %s, name length %u", buffer, length);
    CHECK(sendto(p[1], "back", 4, MSG_NOSIGNAL, NULL, 0) == 4);
    CHECK(recvfrom(p[0], buffer, 2, MSG_WAITALL, NULL, NULL) == 2);
    CHECK(recvfrom(p[0], buffer + 2, 2, MSG_WAITALL, NULL, NULL) == 2);
    say("recvfrom %.4s", buffer);
    CHECK_ERRNO(recvfrom(p[0], buffer, 1, MSG_DONTWAIT, NULL, NULL), EAGAIN);
    return 0;
}
