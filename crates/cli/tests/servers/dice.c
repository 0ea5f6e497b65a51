// Answers each line `N` with `done`, a thread a connection; before, it takes one of two mutexes N times. Which one, the processor's random numbers
// decide, which Skein does not make equal: the second mutex once in CHANCE times.
//
//   dice CHANCE PORT

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static unsigned long chance;

static unsigned long roll(void)
{
    unsigned long number;
    unsigned char valid;
    do
        __asm__ volatile("rdrand %0; setc %1" : "=r"(number), "=qm"(valid));
    while (!valid);
    return number;
}

// Not inlined: a backtrace is to name it.
__attribute__((noinline)) static void take(int which)
{
    pthread_mutex_lock(&locks[which]);
    pthread_mutex_unlock(&locks[which]);
    __asm__ volatile("");
}

__attribute__((noinline)) static void *serve(void *arg)
{
    int client = (int)(long)arg;
    char line[64];
    FILE *in = fdopen(client, "r");
    while (fgets(line, sizeof line, in)) {
        for (long n = strtol(line, NULL, 10); n > 0; n--)
            take(roll() % chance == 0);
        dprintf(client, "done\n");
    }
    fclose(in);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    chance = strtoul(argv[1], NULL, 10);
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 16))
        return 1;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int client = accept(listening, NULL, NULL);
        pthread_t thread;
        if (client < 0 || pthread_create(&thread, NULL, serve, (void *)(long)client))
            return 1;
        pthread_detach(thread);
    }
}
