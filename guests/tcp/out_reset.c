/* Another host resets: ECONNRESET once, then the end; writing is a broken pipe.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

int main(void)
{
    int fd = outside_connect(OUTSIDE_RESETS);
    write_all(fd, "x", 1);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, -1) == 1);
    CHECK(p.revents == (POLLIN | POLLERR | POLLHUP));
    char byte;
    CHECK_ERRNO(read(fd, &byte, 1), ECONNRESET);
    CHECK(read(fd, &byte, 1) == 0);
    CHECK_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(close(fd) == 0);
    say("reset");
    return 0;
}
