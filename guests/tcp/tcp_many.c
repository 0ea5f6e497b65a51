/* 300 connections to one epoll server thread: each asks twice, every answer is its own.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

enum { CLIENTS = 300 };

static void *serve(void *arg)
{
    int listener = *(int *)arg, ep = epoll_create1(EPOLL_CLOEXEC), left = CLIENTS;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[32];
    set_nonblocking(listener);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event) == 0);
    while (left > 0) {
        int n = epoll_wait(ep, ready, 32, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.fd == listener) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                CHECK(fd >= 0);
                event.data.fd = fd;
                CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
                continue;
            }
            int number;
            ssize_t got = read(ready[i].data.fd, &number, sizeof number);
            if (got == 0) {
                CHECK(close(ready[i].data.fd) == 0);
                left--;
                continue;
            }
            CHECK(got == sizeof number);
            number = number * 2 + 1;
            write_all(ready[i].data.fd, &number, sizeof number);
        }
    }
    CHECK(close(ep) == 0);
    return NULL;
}

int main(void)
{
    int port, fds[CLIENTS];
    long sum = 0;
    int listener = tcp_listen(AF_INET, &port);
    pthread_t server = spawn(serve, &listener);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = tcp_connect(AF_INET, port);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            int number = i * 10 + round;
            write_all(fds[i], &number, sizeof number);
        }
        for (int i = CLIENTS - 1; i >= 0; i--) {
            int number;
            read_exact(fds[i], &number, sizeof number);
            CHECK(number == (i * 10 + round) * 2 + 1);
            sum += number;
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        CHECK(close(fds[i]) == 0);
    join(server);
    say("%d clients, sum %ld", CLIENTS, sum);
    return 0;
}
