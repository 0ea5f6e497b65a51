/* A server driven from outside, wrong on purpose: a thread a connection mixes its received bytes into one shared array
 * without any lock, with yields between. Every answer depends on how the threads interleave, so replicas agree only
 * if their schedules do. "quit\n" ends it with status 0.
 *
 * expect: same
 * clients 8: open, 12 times (ask "client {client} says {n}" for 17), fin, closed
 */
#include "guest.h"

enum { WORDS = 64, ROUNDS = 200 };

static volatile uint64_t mix[WORDS];

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    unsigned char buffer[256];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0) {
        if (n == 5 && memcmp(buffer, "quit\n", 5) == 0)
            exit(0);
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t seed = buffer[round % n] + (uint64_t)round;
            uint64_t read_early = mix[seed % WORDS];
            if (round % 16 == 0)
                sched_yield();
            mix[seed % WORDS] = (read_early ^ seed) * 0x9e3779b97f4a7c15u + mix[(seed + 1) % WORDS];
        }
        uint64_t sum = 0;
        for (int i = 0; i < WORDS; i++)
            sum = sum * 31 + mix[i];
        char reply[32];
        int length = snprintf(reply, sizeof reply, "%016llx\n", (unsigned long long)sum);
        if (send(fd, reply, (size_t)length, MSG_NOSIGNAL) < 0)
            break;
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    serve_by_threads(server_listen(argc, argv, 0), serve);
}
