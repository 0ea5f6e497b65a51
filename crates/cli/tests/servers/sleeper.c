/* A server that lives by the clock: one thread sleeps 100 ms at a time, or MS, and counts; the other answers every line with how often that was, and
 * with its clocks in ns.
 *
 *     TICKS REALTIME MONOTONIC
 *
 * Before it answers "look", it looks at a clock 20,000 times.
 *
 *     sleeper [MS] PORT */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static atomic_long ticks;
static unsigned pause_ms = 100;

static void *sleeps(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(pause_ms * 1000);
        atomic_fetch_add(&ticks, 1);
    }
}

static long long reads(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *answers(void *arg)
{
    FILE *client = fdopen((int)(long)arg, "r+");
    char line[256];
    if (client == NULL)
        return NULL;
    while (fgets(line, sizeof line, client) != NULL) {
        for (int i = 0; i < 20000 && strcmp(line, "look\n") == 0; i++)
            reads(CLOCK_MONOTONIC);
        fprintf(client, "%ld %lld %lld\n", atomic_load(&ticks), reads(CLOCK_REALTIME), reads(CLOCK_MONOTONIC));
        fflush(client);
    }
    fclose(client);
    return NULL;
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[argc - 1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    pthread_t thread;
    if (argc > 2)
        pause_ms = (unsigned)atoi(argv[1]);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0)
        return 1;
    if (pthread_create(&thread, NULL, sleeps, NULL) != 0)
        return 1;
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            return 1;
        if (pthread_create(&thread, NULL, answers, (void *)(long)client) != 0)
            return 1;
        pthread_detach(thread);
    }
}
