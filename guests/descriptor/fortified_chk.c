/* The fortified forms of the calls: __read_chk, __recv_chk, __recvfrom_chk, __poll_chk, __ppoll_chk, __pread_chk.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

/* Buffers of a size that the compiler knows, with a length that it does not know, so that the checked form is called. */
static volatile size_t length = 3;
static volatile nfds_t count = 1;

int main(void)
{
    int p[2];
    char buffer[16] = {0};
    tcp_pair(p);
    struct pollfd fds[2] = {{.fd = p[1], .events = POLLIN}};
    struct timespec zero = {0, 0};
    CHECK(poll(fds, count, 0) == 0);
    write_all(p[0], "abcdefghijkl", 12);
    CHECK(poll(fds, count, -1) == 1 && fds[0].revents == POLLIN);
    CHECK(ppoll(fds, count, &zero, NULL) == 1);
    CHECK(read(p[1], buffer, length) == 3);
    CHECK(recv(p[1], buffer + 3, length, 0) == 3);
    CHECK(recvfrom(p[1], buffer + 6, length, 0, NULL, NULL) == 3);
    CHECK(recv(p[1], buffer + 9, length, MSG_PEEK) == 3);
    say("read by checked calls: %s", buffer);
    char host[64];
    CHECK(gethostname(host, length + 60) == 0 || errno == ENAMETOOLONG);
    return 0;
}
