/* Several threads wait on one epoll set with ONESHOT: each of 40 messages is handled exactly once.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

enum { CONNECTIONS = 4, MESSAGES = 10 };

static int ep, handled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *arg)
{
    struct epoll_event got;
    for (;;) {
        char byte;
        CHECK(epoll_wait(ep, &got, 1, -1) == 1);
        CHECK(read(got.data.fd, &byte, 1) == 1);
        if (byte == 'q') {
            got.events = EPOLLIN | EPOLLONESHOT;
            return NULL;
        }
        write_all(got.data.fd, &byte, 1);
        CHECK(pthread_mutex_lock(&lock) == 0);
        handled++;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        note("worker %ld got %c", (long)arg, byte);
        got.events = EPOLLIN | EPOLLONESHOT;
        CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, got.data.fd, &got) == 0);
    }
}

int main(void)
{
    int pairs[CONNECTIONS][2];
    pthread_t threads[CONNECTIONS];
    ep = epoll_create1(0);
    for (int i = 0; i < CONNECTIONS; i++) {
        tcp_pair(pairs[i]);
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = pairs[i][1]};
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, pairs[i][1], &event) == 0);
    }
    for (long i = 0; i < CONNECTIONS; i++)
        threads[i] = spawn(worker, (void *)i);
    for (int m = 0; m < MESSAGES; m++) {
        for (int i = 0; i < CONNECTIONS; i++)
            write_all(pairs[i][0], &(char){(char)('A' + m)}, 1);
        for (int i = 0; i < CONNECTIONS; i++) {
            char byte;
            read_exact(pairs[i][0], &byte, 1);
            CHECK(byte == 'A' + m);
        }
    }
    for (int i = 0; i < CONNECTIONS; i++)
        write_all(pairs[i][0], "q", 1);
    for (int i = 0; i < CONNECTIONS; i++)
        join(threads[i]);
    say("handled %d", handled);
    return 0;
}
