/* shutdown each way, and the results of reads and writes afterwards on both ends.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int p[2];
    char byte;
    signal(SIGPIPE, SIG_IGN);

    tcp_pair(p);
    write_all(p[0], "last", 4);
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    CHECK_ERRNO(write(p[0], "x", 1), EPIPE);
    expect_text(p[1], "last");
    CHECK(read(p[1], &byte, 1) == 0);
    CHECK(read(p[1], &byte, 1) == 0);
    write_all(p[1], "reply", 5);
    expect_text(p[0], "reply");
    say("SHUT_WR: data, then end of file, replies still pass");
    close(p[0]);
    close(p[1]);

    tcp_pair(p);
    CHECK(shutdown(p[0], SHUT_RD) == 0);
    CHECK(read(p[0], &byte, 1) == 0);
    write_all(p[0], "out", 3);
    expect_text(p[1], "out");
    say("SHUT_RD: end of file at once, writes still pass");
    close(p[0]);
    close(p[1]);

    tcp_pair(p);
    CHECK(shutdown(p[0], SHUT_RDWR) == 0);
    CHECK(read(p[0], &byte, 1) == 0);
    CHECK_ERRNO(write(p[0], "x", 1), EPIPE);
    CHECK(read(p[1], &byte, 1) == 0);
    say("SHUT_RDWR: both");
    close(p[0]);
    close(p[1]);

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(shutdown(fd, SHUT_WR), ENOTCONN);
    tcp_pair(p);
    CHECK_ERRNO(shutdown(p[0], 7), EINVAL);
    CHECK_ERRNO(shutdown(-1, SHUT_WR), EBADF);
    CHECK_ERRNO(shutdown(0x7fff, SHUT_WR), EBADF);
    say("errors: ENOTCONN EINVAL EBADF");
    return 0;
}
