/* close ends the waits of others: readers of the other end see end of file, pollers see HUP.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

static int p[2], s[2], u[2];

static void *reader(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
    return NULL;
}

int main(void)
{
    CHECK(pipe(p) == 0);
    tcp_pair(s);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, u) == 0);
    pthread_t threads[3] = {spawn(reader, &p[0]), spawn(reader, &s[0]), spawn(reader, &u[0])};
    sleep_ms(20);
    CHECK(close(p[1]) == 0 && close(s[1]) == 0 && close(u[1]) == 0);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    say("all three readers saw the end");
    struct pollfd fds = {.fd = p[0], .events = 0};
    CHECK(poll(&fds, 1, 0) == 1 && fds.revents == POLLHUP);
    return 0;
}
