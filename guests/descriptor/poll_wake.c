/* A thread blocked in poll without a timeout is woken by data, a connection and an end of file.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

static void *actor(void *arg)
{
    int *fds = arg;
    sleep_ms(20);
    write_all(fds[0], "d", 1);
    sleep_ms(20);
    int fd = tcp_connect(AF_INET, fds[1]);
    sleep_ms(20);
    CHECK(close(fd) == 0);
    CHECK(close(fds[0]) == 0);
    return NULL;
}

int main(void)
{
    int p[2], port;
    tcp_pair(p);
    int listener = tcp_listen(AF_INET, &port);
    int arg[2] = {p[0], port};
    struct pollfd fds[2] = {{.fd = p[1], .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    pthread_t thread = spawn(actor, arg);
    char byte;
    CHECK(poll(fds, 2, -1) == 1 && fds[0].revents == POLLIN && fds[1].revents == 0);
    CHECK(read(p[1], &byte, 1) == 1);
    say("woken by data");
    CHECK(poll(fds, 2, 10000) == 1 && fds[0].revents == 0 && fds[1].revents == POLLIN);
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    say("woken by a connection");
    fds[0].events = POLLRDHUP;
    CHECK(poll(fds, 1, -1) == 1 && fds[0].revents == POLLRDHUP);
    say("woken by the peer's end");
    CHECK(read(fd, &byte, 1) == 0);
    join(thread);
    return 0;
}
