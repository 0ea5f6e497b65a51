/* getsockopt and setsockopt: defaults, stored values and how they read back, errors.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/time.h>

static int get(int fd, int level, int option)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, option, &value, &length) == 0);
    CHECK(length == sizeof value);
    return value;
}

static void flag(int fd, const char *name, int level, int option)
{
    int on = 1, off = 0;
    int before = get(fd, level, option);
    CHECK(setsockopt(fd, level, option, &on, sizeof on) == 0);
    int set = get(fd, level, option);
    CHECK(setsockopt(fd, level, option, &off, sizeof off) == 0);
    say("%s: default %d, set %d, cleared %d", name, before, set != 0, get(fd, level, option));
}

static void number(int fd, const char *name, int level, int option, int value)
{
    CHECK(setsockopt(fd, level, option, &value, sizeof value) == 0);
    say("%s: set %d, reads %d", name, value, get(fd, level, option));
}

int main(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    say("SO_TYPE stream %d, SO_DOMAIN inet %d, SO_PROTOCOL tcp %d", get(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM,
        get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET, get(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    say("SO_ERROR %d, SO_ACCEPTCONN %d", get(fd, SOL_SOCKET, SO_ERROR), get(fd, SOL_SOCKET, SO_ACCEPTCONN));
    flag(fd, "SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR);
    flag(fd, "SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT);
    flag(fd, "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE);
    flag(fd, "SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE);
    flag(fd, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    flag(fd, "TCP_CORK", IPPROTO_TCP, TCP_CORK);
    number(fd, "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 65536);
    number(fd, "SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 65536);
    number(fd, "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77);
    number(fd, "TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 7);
    number(fd, "TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 3);
    number(fd, "TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
    number(fd, "TCP_DEFER_ACCEPT 0", IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);

    struct linger linger = {.l_onoff = 1, .l_linger = 9};
    socklen_t length = sizeof linger;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    memset(&linger, 0, sizeof linger);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) == 0);
    say("SO_LINGER %d %d", linger.l_onoff, linger.l_linger);

    struct timeval tv = {.tv_sec = 2, .tv_usec = 500000};
    length = sizeof tv;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
    memset(&tv, 0, sizeof tv);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &length) == 0);
    say("SO_RCVTIMEO %ld.%06ld", (long)tv.tv_sec, (long)tv.tv_usec);

    char small = 0;
    length = 1;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &small, &length) == 0 && length == 1 && small == SOCK_STREAM);
    int one = 1;
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, 1), EINVAL);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, 9999, &one, sizeof one), ENOPROTOOPT);
    CHECK_ERRNO(setsockopt(fd, IPPROTO_TCP, 9999, &one, sizeof one), ENOPROTOOPT);
    CHECK_ERRNO(setsockopt(-1, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one), EBADF);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_TYPE, &one, sizeof one), ENOPROTOOPT);
    int port;
    int listener = tcp_listen(AF_INET, &port);
    say("listener: SO_ACCEPTCONN %d, SO_REUSEADDR %d", get(listener, SOL_SOCKET, SO_ACCEPTCONN),
        get(listener, SOL_SOCKET, SO_REUSEADDR));
    return 0;
}
