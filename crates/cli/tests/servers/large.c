// Has one large file: `write MIB SEED` writes it anew, `sum` reads it. Both answer a sum of its bytes.
//
//   large PORT

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static uint64_t words[MIB / sizeof(uint64_t)];

static uint64_t add(uint64_t sum)
{
    for (size_t at = 0; at < sizeof words / sizeof *words; at++)
        sum = (sum << 7 | sum >> 57) ^ words[at];
    return sum;
}

static int made(unsigned long mib, uint64_t state, uint64_t *sum)
{
    int file = open("large.data", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        return -1;
    for (unsigned long n = 0; n < mib; n++) {
        for (size_t at = 0; at < sizeof words / sizeof *words; at++)
            words[at] = state = state * 6364136223846793005u + 1442695040888963407u;
        if (write(file, words, sizeof words) != sizeof words)
            return -1;
        *sum = add(*sum);
    }
    return close(file);
}

static int seen(uint64_t *sum)
{
    int file = open("large.data", O_RDONLY);
    ssize_t got;
    if (file < 0)
        return -1;
    while ((got = read(file, words, sizeof words)) == sizeof words)
        *sum = add(*sum);
    close(file);
    return got == 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0)
        return 1;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        char line[256];
        FILE *from = fdopen(connection, "r"), *to = fdopen(dup(connection), "w");
        while (from && to && fgets(line, sizeof line, from)) {
            unsigned long mib, seed;
            uint64_t sum = 0;
            int failed = sscanf(line, "write %lu %lu", &mib, &seed) == 2 ? made(mib, seed, &sum) : seen(&sum);
            fprintf(to, failed ? "failed\n" : "%016llx\n", (unsigned long long)sum);
            fflush(to);
        }
        if (from)
            fclose(from);
        if (to)
            fclose(to);
    }
}
