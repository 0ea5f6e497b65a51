/* A server driven from outside that is idle without requests: it accepts, holds the connections and never times
 * out. While no client sends, it must cost no log entry at all. A "quit\n" ends it with status 0.
 *
 * expect: same
 * clients 5: open, send "says {client}\n", fin, closed
 * idle: no entry but the inputs of its clients
 */
#include "guest.h"
#include <poll.h>

enum { MAX_FDS = 1024 };

int main(int argc, char **argv)
{
    static struct pollfd fds[MAX_FDS];
    nfds_t count = 1;
    int listener = server_listen(argc, argv, 0);
    fds[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (;;) {
        CHECK(poll(fds, count, -1) > 0);
        for (nfds_t i = count - 1; i > 0; i--) {
            char buffer[256];
            if (!fds[i].revents)
                continue;
            ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
            if (n == 5 && memcmp(buffer, "quit\n", 5) == 0)
                return 0;
            if (n <= 0) {
                CHECK(close(fds[i].fd) == 0);
                fds[i] = fds[--count];
            }
        }
        if (fds[0].revents) {
            int fd = accept(listener, NULL, NULL);
            CHECK(fd >= 0 && count < MAX_FDS);
            fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
}
