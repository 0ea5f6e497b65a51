// Two processes that take turns at one listening socket and send back what they are sent.
//
//   workers PORT

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Not inlined: a backtrace is to name it.
__attribute__((noinline)) static void work(int listener)
{
    for (;;) {
        char bytes[64];
        int client = accept(listener, NULL, NULL);
        ssize_t len = read(client, bytes, sizeof bytes);
        if (len > 0 && write(client, bytes, len) != len)
            abort();
        close(client);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1]))};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 16))
        return 1;
    fork();
    work(listener);
}
