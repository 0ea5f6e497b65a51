/* readv, writev, recvmsg and sendmsg: pieces gathered and scattered, flags, empty pieces.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/uio.h>

int main(void)
{
    int p[2];
    tcp_pair(p);
    char a[4] = {0}, b[8] = {0}, c[16] = {0};
    struct iovec out[3] = {{"abc", 3}, {"", 0}, {"defghij", 7}};
    CHECK(writev(p[0], out, 3) == 10);
    struct iovec in[3] = {{a, 3}, {b, 4}, {c, sizeof c}};
    CHECK(readv(p[1], in, 3) == 10);
    say("readv: %s|%s|%s", a, b, c);

    struct sockaddr_storage name;
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    CHECK(sendmsg(p[1], &message, MSG_NOSIGNAL) == 10);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b), memset(c, 0, sizeof c);
    struct msghdr received = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = in, .msg_iovlen = 3, .msg_flags = -1};
    CHECK(recvmsg(p[0], &received, MSG_PEEK) == 10);
    CHECK(recvmsg(p[0], &received, 0) == 10);
    say("recvmsg: %s|%s|%s namelen %u controllen %zu flags %d", a, b, c, received.msg_namelen, received.msg_controllen,
        received.msg_flags);
    CHECK_ERRNO(recvmsg(p[0], &received, MSG_DONTWAIT), EAGAIN);

    CHECK(writev(p[0], out, 0) == 0);
    volatile int none = -1, many = 100000; /* Hidden from the compiler, which would refuse. */
    CHECK_ERRNO(writev(p[0], out, none), EINVAL);
    CHECK_ERRNO(readv(p[0], in, many), EINVAL);
    CHECK_ERRNO(writev(-1, out, 1), EBADF);
    CHECK_ERRNO(sendmsg(-1, &message, 0), EBADF);
    return 0;
}
