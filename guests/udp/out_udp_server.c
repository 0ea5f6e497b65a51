/* A server for unasked datagrams: two threads answer, each with its own socket or a shared one.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

#define CALLS 20

static int answered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *answer(void *arg)
{
    int fd = *(int *)arg;
    for (;;) {
        char text[64];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(fd, text, sizeof text - 1, 0, (struct sockaddr *)&from, &size);
        CHECK(n > 0);
        text[n] = 0;
        if (strcmp(text, "end") == 0)
            return NULL;
        CHECK(ntohl(from.sin_addr.s_addr) == OUTSIDE_HOST);
        CHECK(ntohs(from.sin_port) >= 4000 && ntohs(from.sin_port) < 4003);
        CHECK(pthread_mutex_lock(&lock) == 0);
        note("%s from port %d is number %d", text, ntohs(from.sin_port), ++answered);
        int last = answered == CALLS;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        CHECK(sendto(fd, text, (size_t)n, 0, (struct sockaddr *)&from, size) == n);
        if (last) {
            /* To itself: does not leave the server. */
            struct sockaddr_storage own;
            socklen_t length = loopback(AF_INET, local_port(fd), &own);
            for (int i = 0; i < 2; i++)
                CHECK(sendto(fd, "end", 3, 0, (struct sockaddr *)&own, length) == 3);
        }
    }
}

int main(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(5300)};
    CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        threads[i] = spawn(answer, &fd);
    for (int i = 0; i < 2; i++)
        join(threads[i]);
    CHECK(answered == CALLS);
    CHECK(close(fd) == 0);
    say("%d answered", answered);
    return 0;
}
