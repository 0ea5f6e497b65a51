/* A server driven from outside: a thread a connection, blocking calls, a counter under a mutex in every answer.
 * "quit\n" ends it with status 0. */
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long requests;

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buffer[4096], reply[4200];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0) {
        if (n == 5 && memcmp(buffer, "quit\n", 5) == 0)
            exit(0);
        CHECK(pthread_mutex_lock(&lock) == 0);
        long number = ++requests;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        int length = snprintf(reply, sizeof reply, "%ld ", number);
        memcpy(reply + length, buffer, (size_t)n);
        if (send(fd, reply, (size_t)(length + n), MSG_NOSIGNAL) < 0)
            break;
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_storage address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = loopback(AF_INET, argc > 1 ? atoi(argv[1]) : 7000, &address);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0);
    CHECK(listen(listener, 128) == 0);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(pthread_detach(spawn(serve, (void *)(intptr_t)fd)) == 0);
    }
}
