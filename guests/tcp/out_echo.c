/* A connection to another host: names, small and large exchanges, half close.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

#define LARGE (3 << 20)

static void *send_large(void *arg)
{
    int fd = *(int *)arg;
    char *bytes = (char *)malloc(LARGE);
    CHECK(bytes != NULL);
    for (int i = 0; i < LARGE; i++)
        bytes[i] = (char)(i % 127);
    write_all(fd, bytes, LARGE);
    free(bytes);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    return NULL;
}

int main(void)
{
    int fd = outside_connect(OUTSIDE_ECHO);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    CHECK(getpeername(fd, (struct sockaddr *)&name, &length) == 0);
    CHECK(ntohl(name.sin_addr.s_addr) == OUTSIDE_HOST && ntohs(name.sin_port) == OUTSIDE_ECHO);
    CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
    CHECK(ntohl(name.sin_addr.s_addr) == INADDR_LOOPBACK && name.sin_port != 0);
    note("from port %d", ntohs(name.sin_port));
    for (int i = 0; i < 20; i++) {
        char line[32];
        snprintf(line, sizeof line, "line %d\n", i);
        write_all(fd, line, strlen(line));
        expect_text(fd, line);
    }
    CHECK_ERRNO(outside_start(fd, OUTSIDE_ECHO), EISCONN);
    say("lines came back");
    pthread_t sender = spawn(send_large, &fd);
    for (int got = 0; got < LARGE;) {
        char buffer[10000];
        ssize_t n = read(fd, buffer, sizeof buffer);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            CHECK(buffer[i] == (char)((got + i) % 127));
        got += (int)n;
    }
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
    join(sender);
    CHECK(close(fd) == 0);
    say("3 MiB came back, then the end");
    return 0;
}
