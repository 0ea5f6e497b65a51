/* Half-close as protocols use it: the client sends a request, shuts down its side, and reads the reply to its end.
 *
 * expect: same
 */
#include "guest.h"

static void *serve(void *arg)
{
    int fd = *(int *)arg;
    char request[256];
    size_t total = 0;
    ssize_t n;
    while ((n = read(fd, request + total, sizeof request - total)) > 0)
        total += (size_t)n;
    CHECK(n == 0);
    for (size_t i = 0; i < total; i++)
        request[i] = (char)(request[i] - 'a' + 'A');
    write_all(fd, request, total);
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    int p[2];
    tcp_pair(p);
    pthread_t server = spawn(serve, &p[1]);
    write_all(p[0], "abc", 3);
    write_all(p[0], "def", 3);
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    char reply[64];
    size_t total = 0;
    ssize_t n;
    while ((n = read(p[0], reply + total, sizeof reply - total)) > 0)
        total += (size_t)n;
    CHECK(n == 0);
    say("reply %.*s", (int)total, reply);
    join(server);
    return 0;
}
