// Answers each line with a number, one more each time, a thread a connection. The line `race` is answered when two threads have added to one variable
// without a lock, and whoever was interrupted between its read and its write has let the other run: how much of their work is lost, the interrupts
// decide, which come at another place on each replica. No answer tells of it.
//
// Skein gives the turn at calls only, the same ones on all replicas, so an ordinary race has one outcome. This one asks the processor: its return from any interrupt
// clears a null selector in a segment register (SDM 2A, IRET: "return to outer privilege level").
//
//   raced PORT

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The same number on all replicas, as each of them is an ordered call.
enum { INTERRUPTS = 8, NULL_SELECTOR = 3 };
// Where no interrupt is seen within some seconds, there is no race, and no difference to be found.
static const unsigned long most_looks = 1ul << 32;

static volatile unsigned long raced_for;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long requests;

static void await_interrupts(void)
{
    __asm__ volatile("mov %0, %%ds" : : "r"(NULL_SELECTOR));
}

static int is_interrupted(void)
{
    int selector;
    __asm__ volatile("mov %%ds, %0" : "=r"(selector));
    return selector != NULL_SELECTOR;
}

static void *add(void *unused)
{
    for (int n = 0; n < INTERRUPTS; n++) {
        unsigned long value, looks = 0;
        await_interrupts();
        while (value = raced_for, !is_interrupted() && looks++ < most_looks)
            raced_for = value + 1;
        sched_yield();
        raced_for = value + 1;
    }
    return unused;
}

static int race(void)
{
    pthread_t threads[2];
    for (int n = 0; n < 2; n++)
        if (pthread_create(&threads[n], NULL, add, NULL))
            return 0;
    return !pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL);
}

static void *serve(void *arg)
{
    int client = (int)(long)arg;
    char line[64];
    FILE *in = fdopen(client, "r");
    while (fgets(line, sizeof line, in)) {
        if (!strcmp(line, "race\n") && !race())
            break;
        pthread_mutex_lock(&lock);
        long number = ++requests;
        pthread_mutex_unlock(&lock);
        dprintf(client, "%ld\n", number);
    }
    fclose(in);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 16))
        return 1;
    for (;;) {
        int client = accept(listening, NULL, NULL);
        pthread_t thread;
        if (client < 0 || pthread_create(&thread, NULL, serve, (void *)(long)client))
            return 1;
        pthread_detach(thread);
    }
}
