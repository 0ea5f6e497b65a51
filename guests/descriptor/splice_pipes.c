/* splice, tee and vmsplice: between pipes, sockets and files; blocking, ends and errors; sendfile into a pipe.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

static int from_socket[2], into[2];

static void *feed(void *arg)
{
    sleep_ms(10);
    write_all(from_socket[1], "from a socket", 13);
    (void)arg;
    return NULL;
}

static void *drain(void *arg)
{
    static char block[4096];
    size_t left = *(size_t *)arg;
    sleep_ms(10);
    while (left > 0) {
        ssize_t n = read(into[0], block, sizeof block);
        CHECK(n > 0);
        left -= (size_t)n;
    }
    return NULL;
}

int main(void)
{
    int a[2], b[2], c[2];
    char buffer[64];
    signal(SIGPIPE, SIG_IGN);
    CHECK(pipe(a) == 0 && pipe(b) == 0 && pipe(c) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, from_socket) == 0 && pipe(into) == 0);

    write_all(a[1], "hello, pipe", 11);
    CHECK(tee(a[0], b[1], 5, 0) == 5);
    CHECK(splice(a[0], NULL, c[1], NULL, 100, 0) == 11);
    expect_text(b[0], "hello");
    expect_text(c[0], "hello, pipe");
    CHECK_ERRNO(splice(a[0], NULL, c[1], NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_ERRNO(tee(a[0], c[1], 1, SPLICE_F_NONBLOCK), EAGAIN);
    struct iovec parts[2] = {{"vm", 2}, {"splice", 6}};
    CHECK(vmsplice(a[1], parts, 2, 0) == 8);
    expect_text(a[0], "vmsplice");
    CHECK_ERRNO(vmsplice(from_socket[0], parts, 2, 0), EBADF);
    say("pipes");

    /* A file of the kernel on either side, with and without a position. */
    FILE *stream = tmpfile();
    int file = fileno(stream);
    loff_t at = 3;
    write_all(a[1], "into a file", 11);
    CHECK(splice(a[0], NULL, file, &at, 11, 0) == 11 && at == 14);
    at = 8;
    CHECK(splice(file, &at, b[1], NULL, 100, SPLICE_F_MOVE) == 6 && at == 14);
    expect_text(b[0], "a file");
    CHECK(lseek(file, 0, SEEK_CUR) == 0);
    CHECK(splice(file, NULL, b[1], NULL, 7, 0) == 7 && lseek(file, 0, SEEK_CUR) == 7);
    CHECK(read(b[0], buffer, sizeof buffer) == 7 && memcmp(buffer, "\0\0\0into", 7) == 0);
    CHECK_ERRNO(splice(a[0], &at, b[1], NULL, 1, 0), ESPIPE);
    CHECK_ERRNO(splice(file, NULL, from_socket[0], NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(a[0], NULL, a[1], NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(a[1], NULL, b[1], NULL, 1, 0), EBADF);
    CHECK_ERRNO(tee(file, b[1], 1, 0), EINVAL);
    say("files, errors");

    /* Sockets; waiting for one, the end of one. */
    pthread_t feeder = spawn(feed, NULL);
    CHECK(splice(from_socket[0], NULL, a[1], NULL, 100, 0) == 13);
    join(feeder);
    CHECK(splice(a[0], NULL, from_socket[0], NULL, 100, 0) == 13);
    expect_text(from_socket[1], "from a socket");
    set_nonblocking(from_socket[0]);
    CHECK_ERRNO(splice(from_socket[0], NULL, a[1], NULL, 100, 0), EAGAIN);
    CHECK(shutdown(from_socket[1], SHUT_WR) == 0);
    CHECK(splice(from_socket[0], NULL, a[1], NULL, 100, 0) == 0);
    int tcp[2];
    tcp_pair(tcp);
    write_all(tcp[0], "by tcp", 6);
    CHECK(splice(tcp[1], NULL, a[1], NULL, 100, 0) == 6);
    CHECK(splice(a[0], NULL, tcp[1], NULL, 6, SPLICE_F_MORE) == 6);
    expect_text(tcp[0], "by tcp");
    say("sockets");

    /* More bytes than the other side has room for wait. */
    static char large[200000];
    size_t whole = sizeof large;
    pthread_t drainer = spawn(drain, &whole);
    CHECK(pwrite(file, large, sizeof large, 0) == (ssize_t)sizeof large);
    at = 0;
    while ((size_t)at < sizeof large)
        CHECK(splice(file, &at, into[1], NULL, sizeof large - (size_t)at, 0) > 0);
    join(drainer);
    off_t from = 100;
    CHECK(sendfile(into[1], file, &from, 500) == 500 && from == 600);
    CHECK(read(into[0], large, sizeof large) == 500);
    say("waited for room");

    close(a[1]);
    CHECK(splice(a[0], NULL, b[1], NULL, 1, 0) == 0);
    close(b[0]);
    write_all(c[1], "x", 1);
    CHECK_ERRNO(splice(c[0], NULL, b[1], NULL, 1, 0), EPIPE);
    expect_text(c[0], "x");
    say("ends");
    return 0;
}
