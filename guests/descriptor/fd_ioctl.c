/* ioctl FIONREAD and FIONBIO on pipes, socketpairs and files; ENOTTY for requests that make no sense.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void)
{
    int p[2], n = -1, on = 1;
    char byte;
    struct termios t;
    CHECK(pipe(p) == 0);
    write_all(p[1], "12345", 5);
    CHECK(ioctl(p[0], FIONREAD, &n) == 0);
    say("pipe FIONREAD %d", n);
    expect_text(p[0], "12345");
    CHECK(ioctl(p[0], FIONBIO, &on) == 0);
    CHECK_ERRNO(read(p[0], &byte, 1), EAGAIN);
    CHECK(!isatty(p[0]) && errno == ENOTTY);
    CHECK_ERRNO(tcgetattr(p[0], &t), ENOTTY);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
    write_all(p[1], "1234567", 7);
    CHECK(ioctl(p[0], FIONREAD, &n) == 0);
    say("socketpair FIONREAD %d", n);
    return 0;
}
