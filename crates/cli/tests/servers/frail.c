// Answers each line `N` with the N-th word of its file, a thread a connection. It does not check N: a large one ends it by SIGSEGV.
//
//   frail WORDS PORT

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *words[8];

// Not inlined: a backtrace is to name it.
__attribute__((noinline)) static const char *look_up(long n)
{
    return *(n < 8 ? words + n : (char **)(n * 4096));
}

__attribute__((noinline)) static void *serve(void *arg)
{
    int client = (int)(long)arg;
    char line[64];
    FILE *in = fdopen(client, "r");
    while (fgets(line, sizeof line, in))
        dprintf(client, "%s\n", look_up(strtol(line, NULL, 10)));
    fclose(in);
    return NULL;
}

int main(int argc, char **argv)
{
    static char text[256];
    FILE *file = fopen(argv[1], "r");
    if (argc < 3 || !file || !fread(text, 1, sizeof text - 1, file))
        return 1;
    fclose(file);
    char *rest = text;
    for (int n = 0; n < 8; n++)
        words[n] = (words[n] = strsep(&rest, "\n")) ? words[n] : "none";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 16))
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        int client = accept(listener, NULL, NULL);
        if (!pthread_create(&thread, NULL, serve, (void *)(long)client))
            pthread_detach(thread);
    }
}
