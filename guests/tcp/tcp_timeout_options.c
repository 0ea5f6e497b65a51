/* SO_RCVTIMEO and SO_SNDTIMEO: a blocking read or write gives up with EAGAIN after that long.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/time.h>

int main(void)
{
    int p[2];
    char byte;
    tcp_pair(p);
    struct timeval tv = {.tv_sec = 0, .tv_usec = 60000};
    CHECK(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_ERRNO(recv(p[0], &byte, 1, 0), EAGAIN);
    int64_t took = now_ns(CLOCK_MONOTONIC) - start;
    CHECK(took >= 59 * NS_PER_MS);
    note("waited %lld ns", (long long)took);
    say("read gave up with EAGAIN");
    write_all(p[1], "z", 1);
    CHECK(read(p[0], &byte, 1) == 1 && byte == 'z');
    say("read in time");

    CHECK(setsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
    static char chunk[1 << 20];
    ssize_t n;
    size_t total = 0;
    while ((n = write(p[0], chunk, sizeof chunk)) > 0)
        total += (size_t)n;
    CHECK(n == -1 && errno == EAGAIN);
    note("wrote %zu bytes", total);
    say("write gave up with EAGAIN");
    return 0;
}
