/* As nginx: workers wait with epoll for one listening socket and answer with their number; clients are threads of the parent.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/wait.h>

enum { WORKERS = 4, CLIENTS = 40 };

static void work(int listener, int number)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    int set = epoll_create1(EPOLL_CLOEXEC), served = 0;
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        char byte;
        CHECK(read(fd, &byte, 1) == 1);
        if (byte == 'q')
            _exit(served);
        served++;
        byte = (char)('0' + number);
        CHECK(write(fd, &byte, 1) == 1);
        CHECK(close(fd) == 0);
    }
}

int main(void)
{
    int port, listener = tcp_listen(AF_INET, &port), by[WORKERS] = {0}, all = 0;
    pid_t workers[WORKERS];
    set_nonblocking(listener);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        CHECK(workers[i] >= 0);
        if (workers[i] == 0)
            work(listener, i);
    }
    for (int i = 0; i < CLIENTS; i++) {
        char byte;
        int fd = tcp_connect(AF_INET, port);
        CHECK(write(fd, "?", 1) == 1 && read(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 0);
        by[byte - '0']++;
        CHECK(close(fd) == 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        int fd = tcp_connect(AF_INET, port);
        CHECK(write(fd, "q", 1) == 1);
        int status;
        pid_t pid = wait(&status);
        CHECK(pid > 0 && WIFEXITED(status));
        for (int w = 0; w < WORKERS; w++)
            if (workers[w] == pid) {
                CHECK(WEXITSTATUS(status) == by[w]);
                all += by[w];
            }
        CHECK(close(fd) == 0);
    }
    note("served %d %d %d %d", by[0], by[1], by[2], by[3]);
    say("%d of %d", all, CLIENTS);
    return 0;
}
