/* socket, bind, listen, accept, connect, read, write, close over IPv4: an echo server thread and a client.
 *
 * expect: same
 */
#include "guest.h"

static void *serve(void *arg)
{
    int listener = *(int *)arg;
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    char buffer[64];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        write_all(fd, buffer, (size_t)n);
    CHECK(n == 0);
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    int port;
    int listener = tcp_listen(AF_INET, &port);
    pthread_t server = spawn(serve, &listener);
    int fd = tcp_connect(AF_INET, port);
    for (int i = 0; i < 5; i++) {
        char out[32], in[33] = {0};
        int length = snprintf(out, sizeof out, "message %d", i);
        write_all(fd, out, (size_t)length);
        read_exact(fd, in, (size_t)length);
        say("echoed: %s", in);
    }
    CHECK(close(fd) == 0);
    join(server);
    CHECK(close(listener) == 0);
    say("done");
    return 0;
}
