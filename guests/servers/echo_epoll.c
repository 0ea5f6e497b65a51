/* A server driven from outside: one epoll loop that echoes, port from the command line. "quit\n" ends it with status 0.
 * The second kind of client fills and drains buffers both ways; the third goes without a word.
 *
 * expect: same
 * clients 20: open, 10 times (ask "{client}{fill}\n" for +0), fin, closed
 * client: open, send 3145728 bytes, send 3145728 bytes, receive 6291456, fin, closed
 * client: open, send "hi", receive 2, reset
 */
#include "guest.h"
#include <sys/epoll.h>

enum { MAX_FDS = 4096, BUFFER_BYTES = 1 << 16 };

/* Bytes that a slow reader has not taken yet. */
static struct {
    char *bytes;
    size_t length;
} pending[MAX_FDS];

static void watch(int ep, int op, int fd, unsigned events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    CHECK(epoll_ctl(ep, op, fd, &event) == 0);
}

static void drop(int fd)
{
    free(pending[fd].bytes);
    pending[fd].bytes = NULL;
    pending[fd].length = 0;
    CHECK(close(fd) == 0);
}

/* Sends pending bytes; false if the connection is gone. */
static int flush(int ep, int fd)
{
    while (pending[fd].length > 0) {
        ssize_t n = send(fd, pending[fd].bytes, pending[fd].length, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(ep, EPOLL_CTL_MOD, fd, EPOLLOUT);
            return 1;
        }
        if (n < 0)
            return 0;
        memmove(pending[fd].bytes, pending[fd].bytes + n, pending[fd].length - (size_t)n);
        pending[fd].length -= (size_t)n;
    }
    watch(ep, EPOLL_CTL_MOD, fd, EPOLLIN);
    return 1;
}

int main(int argc, char **argv)
{
    struct epoll_event ready[64];
    static char buffer[BUFFER_BYTES];
    int ep = epoll_create1(0), listener = server_listen(argc, argv, SOCK_NONBLOCK);
    watch(ep, EPOLL_CTL_ADD, listener, EPOLLIN);
    for (;;) {
        int n = epoll_wait(ep, ready, 64, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                CHECK(fd >= 0 && fd < MAX_FDS);
                watch(ep, EPOLL_CTL_ADD, fd, EPOLLIN);
                continue;
            }
            if (ready[i].events & EPOLLOUT) {
                if (!flush(ep, fd))
                    drop(fd);
                continue;
            }
            ssize_t got = read(fd, buffer, sizeof buffer);
            if (got <= 0) {
                drop(fd);
                continue;
            }
            if (got == 5 && memcmp(buffer, "quit\n", 5) == 0)
                return 0;
            pending[fd].bytes = realloc(pending[fd].bytes, (size_t)got);
            CHECK(pending[fd].bytes != NULL);
            memcpy(pending[fd].bytes, buffer, (size_t)got);
            pending[fd].length = (size_t)got;
            if (!flush(ep, fd))
                drop(fd);
        }
    }
}
