/* A new descriptor takes the lowest free number, whatever kind it is; closed numbers come back.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

int main(void)
{
    int base = open("/dev/null", O_RDONLY), p[2];
    CHECK(base >= 3);
    CHECK(close(base) == 0);
    int fds[6];
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    fds[1] = epoll_create1(0);
    fds[2] = open("/dev/null", O_RDONLY);
    fds[3] = eventfd(0, 0);
    fds[4] = timerfd_create(CLOCK_MONOTONIC, 0);
    fds[5] = dup(fds[0]);
    for (int i = 0; i < 6; i++)
        say("descriptor %d: base + %d", i, fds[i] - base);
    CHECK(close(fds[1]) == 0 && close(fds[3]) == 0);
    CHECK(pipe(p) == 0);
    say("pipe: base + %d, base + %d", p[0] - base, p[1] - base);
    CHECK(close(fds[2]) == 0);
    int s = socket(AF_INET6, SOCK_STREAM, 0);
    say("socket: base + %d", s - base);
    CHECK(close(fds[0]) == 0);
    FILE *file = fopen("/dev/null", "r");
    CHECK(file != NULL);
    say("fopen: base + %d", fileno(file) - base);
    CHECK(fclose(file) == 0);
    int port, listener = tcp_listen(AF_INET, &port);
    int client = tcp_connect(AF_INET, port);
    CHECK(close(p[0]) == 0);
    int server = accept(listener, NULL, NULL);
    say("listener %d client %d accepted %d", listener - base, client - base, server - base);
    return 0;
}
