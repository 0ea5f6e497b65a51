/* EPOLLEXCLUSIVE: accepted with ADD, refused with MOD and with ONESHOT; several waiting threads, all connections served.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

static int listener, stop;
static int served;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *arg)
{
    int ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = listener}, got;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event) == 0);
    event.events = EPOLLIN;
    event.data.fd = stop;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, stop, &event) == 0);
    for (;;) {
        CHECK(epoll_wait(ep, &got, 1, -1) == 1);
        if (got.data.fd == stop)
            break;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        write_all(fd, "k", 1);
        CHECK(close(fd) == 0);
        CHECK(pthread_mutex_lock(&lock) == 0);
        served++;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        note("worker %ld served", (long)arg);
    }
    CHECK(close(ep) == 0);
    return NULL;
}

int main(void)
{
    int port, p[2];
    pthread_t threads[4];
    listener = tcp_listen(AF_INET, &port);
    set_nonblocking(listener);
    CHECK(pipe(p) == 0);
    stop = p[0];

    int ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event) == 0);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, listener, &event), EINVAL);
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, listener, NULL) == 0);
    event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event), EINVAL);
    CHECK(close(ep) == 0);

    for (long i = 0; i < 4; i++)
        threads[i] = spawn(worker, (void *)i);
    for (int i = 0; i < 20; i++) {
        int fd = tcp_connect(AF_INET, port);
        expect_text(fd, "k");
        CHECK(close(fd) == 0);
    }
    write_all(p[1], "q", 1);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    say("served %d", served);
    return 0;
}
