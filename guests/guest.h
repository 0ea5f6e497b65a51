/* Shared by all guest programs: checks, a transcript, and helpers for sockets and threads.
 *
 * Standard output is the transcript: facts that any legal Linux behaviour gives, so it is the same natively and under
 * Skein. Standard error carries facts that are not determined natively (interleavings, clock values, random bytes, addresses):
 * it must be the same in two Skein runs of the same log. A guest that finds a broken expectation prints its place and exits with 1.
 */
#ifndef GUEST_H
#define GUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define NS_PER_MS 1000000LL

/* A broken expectation: file, line, the condition and errno on standard error; exit 1. */
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            guest_fail(__FILE__, __LINE__, #cond);                                                                     \
    } while (0)

/* `expr` fails with `err`. */
#define CHECK_ERRNO(expr, err)                                                                                         \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long long check_value = (long long)(expr);                                                                     \
        if (check_value != -1 || errno != (err))                                                                       \
            guest_fail_errno(__FILE__, __LINE__, #expr, check_value, #err);                                            \
    } while (0)

static inline __attribute__((noreturn, unused)) void guest_fail(const char *file, int line, const char *cond)
{
    int error = errno;
    fflush(stdout);
    dprintf(2, "CHECK failed: %s:%d: %s (errno %d, %s)\n", file, line, cond, error, strerror(error));
    _exit(1);
}

static inline __attribute__((noreturn, unused)) void guest_fail_errno(const char *file, int line, const char *expr,
                                                                      long long value, const char *wanted)
{
    int error = errno;
    fflush(stdout);
    dprintf(2, "CHECK failed: %s:%d: %s gave %lld, errno %d (%s), wanted -1 and %s\n", file, line, expr, value, error,
            strerror(error), wanted);
    _exit(1);
}

/* One line of the transcript. */
static inline __attribute__((format(printf, 1, 2), unused)) void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* One line that may differ natively, but not between two Skein runs. */
static inline __attribute__((format(printf, 1, 2), unused)) void note(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length] = '\n';
    CHECK(write(2, line, (size_t)length + 1) == length + 1);
}

static inline __attribute__((unused)) int64_t now_ns(clockid_t clock)
{
    struct timespec ts;
    CHECK(clock_gettime(clock, &ts) == 0);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static inline __attribute__((unused)) struct timespec to_timespec(int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
    return ts;
}

static inline __attribute__((unused)) void sleep_ms(int ms)
{
    struct timespec ts = to_timespec(ms * NS_PER_MS);
    while (nanosleep(&ts, &ts) != 0)
        CHECK(errno == EINTR);
}

static inline __attribute__((unused)) pthread_t spawn(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, body, arg);
    errno = rc;
    CHECK(rc == 0);
    return thread;
}

static inline __attribute__((unused)) void *join(pthread_t thread)
{
    void *result = NULL;
    int rc = pthread_join(thread, &result);
    errno = rc;
    CHECK(rc == 0);
    return result;
}

static inline __attribute__((unused)) void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    CHECK(flags >= 0);
    CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

/* The loopback address of `family` with `port`; returns its length. */
static inline __attribute__((unused)) socklen_t loopback(int family, int port, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof *address);
    if (family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        in6->sin6_addr = in6addr_loopback;
        return sizeof *in6;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)address;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof *in;
}

static inline __attribute__((unused)) int local_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

/* A listener at loopback port `port`, or a free one for 0; `flags` are those of `socket`. */
static inline __attribute__((unused)) int tcp_listen_at(int family, int flags, int port)
{
    struct sockaddr_storage address;
    int one = 1;
    int fd = socket(family, SOCK_STREAM | flags, 0);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(fd, (struct sockaddr *)&address, loopback(family, port, &address)) == 0);
    CHECK(listen(fd, 128) == 0);
    return fd;
}

/* A listener on a free loopback port, which goes to `*port`. */
static inline __attribute__((unused)) int tcp_listen(int family, int *port)
{
    int fd = tcp_listen_at(family, 0, 0);
    *port = local_port(fd);
    CHECK(*port > 0);
    return fd;
}

/* The listener of a server that takes its port as its argument. */
static inline __attribute__((unused)) int server_listen(int argc, char **argv, int flags)
{
    return tcp_listen_at(AF_INET, flags, argc > 1 ? atoi(argv[1]) : 7000);
}

/* Serves each connection by a thread of its own, whose argument is the descriptor. */
static inline __attribute__((noreturn, unused)) void serve_by_threads(int listener, void *(*serve)(void *))
{
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(pthread_detach(spawn(serve, (void *)(intptr_t)fd)) == 0);
    }
}

static inline __attribute__((unused)) int tcp_connect(int family, int port)
{
    struct sockaddr_storage address;
    int fd = socket(family, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    socklen_t length = loopback(family, port, &address);
    CHECK(connect(fd, (struct sockaddr *)&address, length) == 0);
    return fd;
}

/* A connection to oneself: pair[0] is the client's end, pair[1] the accepted end. */
static inline __attribute__((unused)) void tcp_pair(int pair[2])
{
    int port;
    int listener = tcp_listen(AF_INET, &port);
    pair[0] = tcp_connect(AF_INET, port);
    pair[1] = accept(listener, NULL, NULL);
    CHECK(pair[1] >= 0);
    CHECK(close(listener) == 0);
}

static inline __attribute__((unused)) void write_all(int fd, const void *data, size_t length)
{
    const char *bytes = (const char *)data;
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);
        CHECK(n > 0);
        bytes += n;
        length -= (size_t)n;
    }
}

static inline __attribute__((unused)) void read_exact(int fd, void *data, size_t length)
{
    char *bytes = (char *)data;
    while (length > 0) {
        ssize_t n = read(fd, bytes, length);
        CHECK(n > 0);
        bytes += n;
        length -= (size_t)n;
    }
}

/* `text` comes next on `fd`. */
static inline __attribute__((unused)) void expect_text(int fd, const char *text)
{
    char buffer[256];
    size_t length = strlen(text);
    CHECK(length < sizeof buffer);
    read_exact(fd, buffer, length);
    CHECK(memcmp(buffer, text, length) == 0);
}

#endif
