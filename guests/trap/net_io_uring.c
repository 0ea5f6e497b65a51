/* io_uring_setup: Skein answers ENOSYS, as a kernel without it does, so the server falls back. Natively it may exist.
 *
 * expect: same
 * refused: io_uring
 */
#include "guest.h"
#include <linux/io_uring.h>
#include <sys/syscall.h>

int main(void)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    long fd = syscall(SYS_io_uring_setup, 4, &params);
    note("io_uring_setup %s", fd >= 0 ? "works" : strerror(errno));
    CHECK(fd >= 0 || errno == ENOSYS || errno == EPERM);
    if (fd >= 0)
        close((int)fd);
    /* A program that sees ENOSYS takes the ordinary way. */
    int p[2];
    CHECK(pipe(p) == 0);
    write_all(p[1], "ok", 2);
    expect_text(p[0], "ok");
    say("went on without io_uring");
    return 0;
}
