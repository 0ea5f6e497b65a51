/* SCM_RIGHTS: pipes, sockets, files of the kernel; beside a stream's bytes, in datagrams; cut, peeked, dropped, many.
 *
 * expect: same
 */
#include "unix.h"

/* The kind of `fd`, found by using it. */
static void check_file(int fd, const char *text)
{
    char buffer[32];
    ssize_t n = pread(fd, buffer, sizeof buffer, 0);
    CHECK(n == (ssize_t)strlen(text) && memcmp(buffer, text, (size_t)n) == 0);
}

int main(void)
{
    int s[2], p[2], fds[300], count, flags, n;
    char buffer[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    CHECK(pipe(p) == 0);
    FILE *stream = tmpfile();
    CHECK(stream && fputs("a file", stream) >= 0 && fflush(stream) == 0);
    int file = fileno(stream);

    /* The sender closes its own: the file lives on. */
    CHECK(send_fds(s[0], "x", 1, (int[]){p[0], file}, 2) == 1);
    CHECK(close(p[0]) == 0);
    flags = MSG_CMSG_CLOEXEC;
    CHECK(receive_fds(s[1], buffer, sizeof buffer, fds, 4, &count, &flags) == 1 && count == 2 && buffer[0] == 'x');
    CHECK(fcntl(fds[0], F_GETFD) == FD_CLOEXEC && fcntl(fds[1], F_GETFD) == FD_CLOEXEC);
    CHECK(fds[0] == p[0]);
    write_all(p[1], "through", 7);
    expect_text(fds[0], "through");
    check_file(fds[1], "a file");
    /* One open file description: its position is shared. */
    CHECK(lseek(fds[1], 3, SEEK_SET) == 3 && lseek(file, 0, SEEK_CUR) == 3);
    CHECK(close(fds[1]) == 0);
    p[0] = fds[0];
    say("a pipe and a file");

    /* Bytes with descriptors end a receive; those before do not. */
    CHECK(write(s[0], "aa", 2) == 2);
    CHECK(send_fds(s[0], "bb", 2, &p[1], 1) == 2);
    CHECK(write(s[0], "cc", 2) == 2);
    flags = 0;
    CHECK(receive_fds(s[1], buffer, sizeof buffer, fds, 4, &count, &flags) == 4 && count == 1);
    CHECK(memcmp(buffer, "aabb", 4) == 0 && fcntl(fds[0], F_GETFD) == 0);
    close(fds[0]);
    flags = 0;
    CHECK(receive_fds(s[1], buffer, sizeof buffer, fds, 4, &count, &flags) == 2 && count == 0);
    CHECK(send_fds(s[0], "12345", 5, &p[1], 1) == 5);
    flags = 0;
    CHECK(receive_fds(s[1], buffer, 2, fds, 4, &count, &flags) == 2 && count == 1);
    close(fds[0]);
    CHECK(receive_fds(s[1], buffer, sizeof buffer, fds, 4, &count, &flags) == 3 && count == 0);
    say("where they come");

    /* Not enough room, no room, a plain read: descriptors that are not taken are closed. */
    CHECK(send_fds(s[0], "x", 1, (int[]){p[0], file, p[1]}, 3) == 1);
    flags = 0;
    CHECK(receive_fds(s[1], buffer, 1, fds, 1, &count, &flags) == 1 && count == 1 && (flags & MSG_CTRUNC));
    close(fds[0]);
    CHECK(send_fds(s[0], "x", 1, &file, 1) == 1);
    flags = 0;
    CHECK(receive_fds(s[1], buffer, 1, fds, 0, &count, &flags) == 1 && count == 0 && (flags & MSG_CTRUNC));
    CHECK(send_fds(s[0], "x", 1, &p[1], 1) == 1);
    CHECK(close(p[1]) == 0);
    CHECK(read(s[1], buffer, 1) == 1);
    CHECK(read(p[0], buffer, 1) == 0);
    close(p[0]);
    say("what is not taken is closed");

    /* MSG_PEEK gives descriptors, too, and again. */
    CHECK(pipe(p) == 0);
    CHECK(send_fds(s[0], "look", 4, (int[]){p[1], file}, 2) == 4);
    close(p[1]);
    for (int i = 0; i < 2; i++) {
        flags = MSG_PEEK;
        CHECK(receive_fds(s[1], buffer, sizeof buffer, fds, 4, &count, &flags) == 4 && count == 2);
        check_file(fds[1], "a file");
        close(fds[0]);
        close(fds[1]);
    }
    /* In flight they keep a file alive; when the receiver goes, they are closed. */
    set_nonblocking(p[0]);
    CHECK_ERRNO(read(p[0], buffer, 1), EAGAIN);
    CHECK(close(s[1]) == 0);
    CHECK(read(p[0], buffer, 1) == 0);
    close(s[0]);
    close(p[0]);
    say("peeked, dropped with the receiver");

    /* In datagrams; out of order; sockets that hold sockets. */
    int one[2], two[2], inner[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, one) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, two) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, inner) == 0);
    FILE *second = tmpfile();
    CHECK(fputs("other", second) >= 0 && fflush(second) == 0);
    CHECK(send_fds(one[0], "d", 1, &file, 1) == 1);
    CHECK(send_fds(two[0], "p", 1, (int[]){fileno(second), inner[1]}, 2) == 1);
    CHECK(send_fds(one[0], "e", 1, (int[]){fileno(second)}, 1) == 1);
    CHECK(send_fds(inner[0], "deep", 4, &file, 1) == 4);
    close(inner[1]);
    flags = 0;
    CHECK(receive_fds(two[1], buffer, 9, fds, 4, &count, &flags) == 1 && count == 2);
    check_file(fds[0], "other");
    close(fds[0]);
    int got = fds[1];
    flags = 0;
    CHECK(receive_fds(got, buffer, 9, fds, 4, &count, &flags) == 4 && count == 1);
    check_file(fds[0], "a file");
    close(fds[0]);
    flags = 0;
    CHECK(receive_fds(one[1], buffer, 9, fds, 4, &count, &flags) == 1 && count == 1);
    check_file(fds[0], "a file");
    close(fds[0]);
    /* The rest goes with the sockets. */
    CHECK(send_fds(inner[0], "x", 1, &one[1], 1) == 1);
    close(got);
    close(one[1]);
    CHECK_ERRNO(send(one[0], "x", 1, 0), ECONNREFUSED);
    say("datagrams, packets, a socket in a socket");

    int self[3] = {one[0], -1, one[0]};
    CHECK_ERRNO(send_fds(two[0], "x", 1, self, 3), EBADF);
    for (n = 0; n < 254; n++)
        fds[n] = two[0];
    CHECK_ERRNO(send_fds(two[0], "x", 1, fds, 254), EINVAL);
    struct iovec part = {.iov_base = "x", .iov_len = 1};
    struct msghdr endless = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = fds, .msg_controllen = (size_t)-1};
    CHECK_ERRNO(sendmsg(two[0], &endless, 0), ENOBUFS);
    CHECK(send_fds(two[0], "x", 1, fds, 253) == 1);
    flags = 0;
    CHECK(receive_fds(two[1], buffer, 9, fds, 253, &count, &flags) == 1 && count == 253);
    for (n = 0; n < 253; n++)
        CHECK(close(fds[n]) == 0);
    say("many");
    return 0;
}
