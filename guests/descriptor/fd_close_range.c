/* close_range and closefrom reach virtual descriptors; CLOSE_RANGE_CLOEXEC marks them.
 *
 * expect: same
 */
#include "guest.h"
#include <linux/close_range.h>

int main(void)
{
    int p[2];
    CHECK(pipe(p) == 0);
    CHECK(dup2(p[0], 50) == 50);
    CHECK(dup2(p[1], 51) == 51);
    CHECK(socket(AF_INET, SOCK_STREAM, 0) >= 0);
    CHECK(close_range(50, 60, CLOSE_RANGE_CLOEXEC) == 0);
    CHECK(fcntl(50, F_GETFD) == FD_CLOEXEC && fcntl(51, F_GETFD) == FD_CLOEXEC);
    CHECK(close_range(50, 60, 0) == 0);
    CHECK_ERRNO(fcntl(50, F_GETFD), EBADF);
    CHECK_ERRNO(close(51), EBADF);
    write_all(p[1], "x", 1);
    expect_text(p[0], "x");
    closefrom(3);
    CHECK_ERRNO(read(p[0], p, 1), EBADF);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("closed from 3 on; the next descriptor is %d", fd);
    return 0;
}
