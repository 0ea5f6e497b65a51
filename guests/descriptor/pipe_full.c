/* A full pipe: capacity, EAGAIN, PIPE_BUF atomicity of non-blocking writes, writable again, F_GETPIPE_SZ, F_SETPIPE_SZ.
 *
 * expect: same
 */
#include "guest.h"
#include <limits.h>
#include <poll.h>

int main(void)
{
    int p[2];
    static char chunk[PIPE_BUF], sink[1 << 17];
    CHECK(pipe2(p, O_NONBLOCK) == 0);
    say("F_GETPIPE_SZ %d", fcntl(p[1], F_GETPIPE_SZ));
    long total = 0;
    while (write(p[1], chunk, sizeof chunk) == sizeof chunk)
        total += sizeof chunk;
    CHECK(errno == EAGAIN);
    say("holds %ld bytes", total);
    struct pollfd out = {.fd = p[1], .events = POLLOUT};
    CHECK(poll(&out, 1, 0) == 0);
    CHECK(read(p[0], sink, 100) == 100);
    CHECK_ERRNO(write(p[1], chunk, sizeof chunk), EAGAIN); /* All or nothing up to PIPE_BUF. */
    CHECK(poll(&out, 1, 0) == 0);
    CHECK(read(p[0], sink, sizeof sink) == total - 100);
    CHECK(poll(&out, 1, 0) == 1 && out.revents == POLLOUT);
    CHECK(write(p[1], sink, sizeof sink) == 65536); /* A large non-blocking write takes what fits. */
    CHECK(read(p[0], sink, sizeof sink) == 65536);
    say("writable again");
    CHECK(fcntl(p[1], F_SETPIPE_SZ, 131072) == 131072);
    CHECK(fcntl(p[0], F_GETPIPE_SZ) == 131072);
    CHECK(write(p[1], sink, sizeof sink) == sizeof sink);
    CHECK(fcntl(p[1], F_SETPIPE_SZ, 4096) == -1 && errno == EBUSY);
    say("F_SETPIPE_SZ 131072");
    return 0;
}
