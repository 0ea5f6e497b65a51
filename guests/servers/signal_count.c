/* A server that tells its clients how many signals it received: "U H" (SIGUSR1, SIGHUP) for every line. Its handler
 * interrupts epoll_wait. "quit\n" ends it with status 0.
 * Signals come before and between requests; from ten on a count has two digits.
 *
 * expect: same
 * client: signal USR1, open, ask "?\n" for 4, signal HUP, signal USR1, ask "?\n" for 4, 7 times (signal USR1, ask "?\n" for 4), 3 times (signal USR1, ask "?\n" for 5), fin, closed
 */
#include "guest.h"
#include <sys/epoll.h>

static volatile int users, hangups;

static void count(int number)
{
    if (number == SIGUSR1)
        users++;
    else
        hangups++;
}

int main(int argc, char **argv)
{
    struct epoll_event ready[16], event = {.events = EPOLLIN};
    struct sigaction action = {.sa_handler = count};
    char line[256], answer[64];
    int ep = epoll_create1(0), listener = server_listen(argc, argv, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sigaction(SIGHUP, &action, NULL) == 0);
    event.data.fd = listener;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event) == 0);
    for (;;) {
        int n = epoll_wait(ep, ready, 16, -1);
        CHECK(n > 0 || errno == EINTR);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                CHECK((event.data.fd = accept(listener, NULL, NULL)) >= 0);
                CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, event.data.fd, &event) == 0);
                continue;
            }
            ssize_t got = read(fd, line, sizeof line);
            if (got == 5 && memcmp(line, "quit\n", 5) == 0)
                return 0;
            if (got <= 0) {
                CHECK(close(fd) == 0);
                continue;
            }
            int bytes = snprintf(answer, sizeof answer, "%d %d\n", users, hangups);
            if (send(fd, answer, (size_t)bytes, MSG_NOSIGNAL) < 0)
                CHECK(close(fd) == 0);
        }
    }
}
