/* poll: readiness of sockets, pipes and files, POLLNVAL, negative descriptors, POLLHUP, timeouts.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

int main(void)
{
    int s[2], p[2], q[2];
    tcp_pair(s);
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    struct pollfd fds[6] = {
        {.fd = s[0], .events = POLLIN | POLLOUT}, {.fd = s[1], .events = POLLIN}, {.fd = p[0], .events = POLLIN},
        {.fd = p[1], .events = POLLOUT},          {.fd = -1, .events = POLLIN},   {.fd = 9999, .events = POLLIN},
    };
    CHECK(poll(fds, 6, 0) == 3);
    for (int i = 0; i < 6; i++)
        say("fds[%d] %#x", i, fds[i].revents);
    write_all(s[0], "x", 1);
    write_all(p[1], "x", 1);
    CHECK(poll(fds + 1, 2, -1) >= 1);
    CHECK(poll(fds, 6, 0) == 5);
    say("socket %#x pipe %#x", fds[1].revents, fds[2].revents);
    CHECK(close(q[1]) == 0);
    struct pollfd hup = {.fd = q[0], .events = POLLIN};
    CHECK(poll(&hup, 1, -1) == 1);
    say("writer closed %#x", hup.revents);
    CHECK(close(p[0]) == 0);
    hup.fd = p[1], hup.events = POLLOUT;
    CHECK(poll(&hup, 1, -1) == 1);
    say("reader closed %#x", hup.revents);
    int file = open("/proc/self/exe", O_RDONLY);
    hup.fd = file, hup.events = POLLIN | POLLOUT;
    CHECK(poll(&hup, 1, -1) == 1);
    say("file %#x", hup.revents);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(poll(NULL, 0, 30) == 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30 * NS_PER_MS);
    say("poll of nothing sleeps");
    return 0;
}
