// Holds memory in which no two pages are the same, and answers each line with a number, one more each time.
//
//   filled MIB PORT

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t bytes = (size_t)atoi(argv[1]) << 20;
    unsigned long *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        return 1;
    for (size_t n = 0; n < bytes / sizeof *words; n++)
        words[n] = (n + 1) * 0x9e3779b97f4a7c15;
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 16))
        return 1;
    for (long number = 0;;) {
        int client = accept(listening, NULL, NULL);
        if (client < 0)
            return 1;
        char line[64];
        while (read(client, line, sizeof line) > 0)
            dprintf(client, "%ld\n", ++number);
        close(client);
    }
}
