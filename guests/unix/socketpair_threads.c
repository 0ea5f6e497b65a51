/* A blocking ping-pong between two threads over a socketpair, and end of file for a blocked reader.
 *
 * expect: same
 */
#include "guest.h"

static void *pong(void *arg)
{
    int fd = *(int *)arg, n;
    while (read(fd, &n, sizeof n) == sizeof n) {
        n++;
        write_all(fd, &n, sizeof n);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    int p[2], n = 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0);
    pthread_t thread = spawn(pong, &p[1]);
    for (int i = 0; i < 500; i++) {
        write_all(p[0], &n, sizeof n);
        read_exact(p[0], &n, sizeof n);
    }
    CHECK(shutdown(p[0], SHUT_WR) == 0);
    char byte;
    CHECK(read(p[0], &byte, 1) == 0);
    join(thread);
    say("count %d", n);
    return 0;
}
