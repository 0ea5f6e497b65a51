/* Blocking calls that a handler interrupts: with SA_RESTART read and accept go on, poll and nanosleep never do; without it all answer EINTR.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile int seen;
static pthread_t sleeper;
static volatile int stop;

static void handler(int number)
{
    CHECK(number == SIGUSR1);
    CHECK(pthread_equal(pthread_self(), sleeper));
    seen++;
    errno = 99;
}

struct act {
    int pipe;
    int listener_port;
    int bytes;
};

/* Interrupts the main thread twice, then lets it go on. */
static void *poke(void *arg)
{
    struct act *act = arg;
    for (int i = 0; i < 2; i++) {
        sleep_ms(20);
        CHECK(pthread_kill(sleeper, SIGUSR1) == 0);
    }
    sleep_ms(20);
    if (act->bytes)
        write_all(act->pipe, "x", 1);
    if (act->listener_port)
        close(tcp_connect(AF_INET, act->listener_port));
    return NULL;
}

static void set(int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    seen = 0;
}

static void result(const char *what, long long n)
{
    int error = n < 0 ? errno : 0;
    say("%s: %lld %s", what, n, error == EINTR ? "EINTR" : error ? strerror(error) : "");
}

int main(void)
{
    int ends[2], port, pair[2];
    char byte;
    sleeper = pthread_self();
    CHECK(pipe(ends) == 0);
    int listener = tcp_listen(AF_INET, &port);
    tcp_pair(pair);

    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        say("%s", flags ? "restarting" : "interrupting");
        struct act reading = {.pipe = ends[1], .bytes = 1}, accepting = {.listener_port = port}, nothing = {0};
        set(flags);
        pthread_t t = spawn(poke, &reading);
        ssize_t n = read(ends[0], &byte, 1);
        result("read", n);
        join(t);
        if (n < 0)
            CHECK(read(ends[0], &byte, 1) == 1);
        CHECK(seen == 2);

        struct act receiving = {.pipe = pair[0], .bytes = 1};
        set(flags);
        t = spawn(poke, &receiving);
        n = recv(pair[1], &byte, 1, 0);
        result("recv", n);
        join(t);
        if (n < 0)
            CHECK(recv(pair[1], &byte, 1, 0) == 1);
        CHECK(seen == 2);

        set(flags);
        t = spawn(poke, &accepting);
        int fd = accept(listener, NULL, NULL);
        result("accept", fd < 0 ? -1 : 0);
        join(t);
        if (fd < 0)
            CHECK((fd = accept(listener, NULL, NULL)) >= 0);
        close(fd);
        CHECK(seen == 2);

        struct timeval limit = {.tv_sec = 5};
        CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
        set(flags);
        t = spawn(poke, &nothing);
        result("recv with a time limit", recv(pair[1], &byte, 1, 0));
        join(t);
        limit.tv_sec = 0;
        CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);

        set(flags);
        t = spawn(poke, &nothing);
        struct timespec request = {.tv_sec = 5}, left = {0, 0};
        result("nanosleep", nanosleep(&request, &left));
        CHECK(left.tv_sec == 4);
        join(t);

        set(flags);
        t = spawn(poke, &nothing);
        CHECK(sleep(5) == 4);
        join(t);

        set(flags);
        t = spawn(poke, &nothing);
        struct pollfd p = {.fd = ends[0], .events = POLLIN};
        result("poll", poll(&p, 1, 5000));
        join(t);

        set(flags);
        t = spawn(poke, &nothing);
        fd_set in;
        FD_ZERO(&in);
        FD_SET(ends[0], &in);
        result("select", select(ends[0] + 1, &in, NULL, NULL, NULL));
        join(t);

        set(flags);
        t = spawn(poke, &nothing);
        int set_fd = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(epoll_ctl(set_fd, EPOLL_CTL_ADD, ends[0], &event) == 0);
        result("epoll_wait", epoll_wait(set_fd, &event, 1, -1));
        join(t);
        close(set_fd);

        set(flags);
        t = spawn(poke, &nothing);
        result("pause", pause());
        join(t);

        sem_t sem;
        CHECK(sem_init(&sem, 0, 0) == 0);
        set(flags);
        t = spawn(poke, &nothing);
        struct timespec until;
        CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
        until.tv_sec += 5;
        result("sem_timedwait", sem_timedwait(&sem, &until));
        join(t);
        CHECK(seen == 2);
    }
    return 0;
}
