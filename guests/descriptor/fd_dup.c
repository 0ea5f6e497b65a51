/* dup, dup2, dup3: shared file, own close-on-exec flag, replaced targets, errors.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int p[2], q[2];
    char byte;
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    int copy = dup(p[1]);
    CHECK(copy >= 0 && fcntl(copy, F_GETFD) == 0);
    CHECK(fcntl(p[1], F_GETFD) == FD_CLOEXEC);
    CHECK(close(p[1]) == 0);
    write_all(copy, "a", 1);
    expect_text(p[0], "a");
    set_nonblocking(p[0]);
    CHECK_ERRNO(read(p[0], &byte, 1), EAGAIN); /* Not the end: the duplicate still writes. */
    int reader = dup(p[0]);
    CHECK(fcntl(reader, F_GETFL) & O_NONBLOCK); /* Status flags belong to the shared file. */
    CHECK(fcntl(reader, F_SETFL, 0) == 0);
    CHECK(!(fcntl(p[0], F_GETFL) & O_NONBLOCK));
    CHECK(close(copy) == 0);
    CHECK(read(reader, &byte, 1) == 0);
    say("dup shares the file, not the descriptor flags");

    CHECK(pipe(q) == 0);
    CHECK(dup2(q[0], p[0]) == p[0]); /* Replaces what was there. */
    write_all(q[1], "b", 1);
    expect_text(p[0], "b");
    CHECK(dup2(q[0], q[0]) == q[0]);
    CHECK(dup2(q[1], 200) == 200);
    write_all(200, "c", 1);
    expect_text(q[0], "c");
    CHECK(dup3(q[1], 201, O_CLOEXEC) == 201 && fcntl(201, F_GETFD) == FD_CLOEXEC);
    CHECK_ERRNO(dup3(q[1], q[1], 0), EINVAL);
    CHECK_ERRNO(dup3(q[1], 202, O_APPEND), EINVAL);
    CHECK_ERRNO(dup2(-1, 5), EBADF);
    CHECK_ERRNO(dup2(q[0], -1), EBADF);
    CHECK_ERRNO(dup(999), EBADF);
    CHECK_ERRNO(dup2(999, 999), EBADF);
    say("dup2 and dup3 replace; errors");

    int s[2];
    tcp_pair(s);
    int other = dup(s[1]);
    CHECK(close(s[1]) == 0);
    write_all(other, "d", 1);
    expect_text(s[0], "d");
    CHECK(close(other) == 0);
    CHECK(read(s[0], &byte, 1) == 0);
    say("a connection ends with its last descriptor");
    return 0;
}
