/* A server driven from outside: a thread a connection, blocking calls, a counter under a mutex in every answer.
 * "quit\n" ends it with status 0.
 * An answer is the request's number and the request: at least two bytes more.
 *
 * expect: same
 * clients 10: open, 8 times (ask "{client}.{n}..\n" for +2), fin, closed
 */
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
    serve_by_threads(server_listen(argc, argv, 0), serve);
}
