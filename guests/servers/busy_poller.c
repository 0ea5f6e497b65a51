/* A server driven from outside that is never idle: one thread loops over sched_yield and the clock and never blocks,
 * another one answers each line with "<lines so far>\n". Inputs get in only because slots do: never at quiescence.
 * "quit\n" ends it with status 0.
 *
 * expect: same
 * client: open, 9 times (ask "line {n}\n" for 2), fin, closed
 */
#include "guest.h"

static volatile uint64_t polls;

static void *poller(void *arg)
{
    int64_t last = 0;
    (void)arg;
    for (;;) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        CHECK(now >= last);
        last = now;
        polls++;
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int listener = server_listen(argc, argv, 0);
    long lines = 0;
    spawn(poller, NULL);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        char buffer[4096], reply[32];
        ssize_t n;
        while ((n = read(fd, buffer, sizeof buffer)) > 0) {
            if (n == 5 && memcmp(buffer, "quit\n", 5) == 0)
                exit(0);
            for (ssize_t i = 0; i < n; i++)
                if (buffer[i] == '\n') {
                    int size = snprintf(reply, sizeof reply, "%ld\n", ++lines);
                    if (send(fd, reply, (size_t)size, MSG_NOSIGNAL) < 0)
                        break;
                }
        }
        CHECK(close(fd) == 0);
    }
}
