/* A server that keeps what it counts in a file, and a second program that goes on with that file, with a library more and other answers.
 *
 *     COUNT WORD          COUNT WORD MORE, with -DSECOND
 *
 *     keeper DIRECTORY PORT */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int word(void);
#ifdef SECOND
int more(void);
#endif

static void ends(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[argc - 1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    signal(SIGTERM, ends);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (chdir(argv[1]) != 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0)
        return 1;
    int file = open("count", O_RDWR | O_CREAT, 0600);
    char text[64] = {0};
    if (file < 0 || pread(file, text, sizeof text - 1, 0) < 0)
        return 1;
    long count = atol(text);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        while (read(client, text, sizeof text) > 0) {
            int length = snprintf(text, sizeof text, "%ld\n", ++count);
            if (pwrite(file, text, (size_t)length, 0) != length)
                return 1;
#ifdef SECOND
            length = snprintf(text, sizeof text, "%ld %d %d\n", count, word(), more());
#else
            length = snprintf(text, sizeof text, "%ld %d\n", count, word());
#endif
            if (write(client, text, (size_t)length) != length)
                break;
        }
        close(client);
    }
}
