/* sendmmsg and recvmmsg: several datagrams a call, MSG_WAITFORONE, a timeout, errors after the first.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    struct sockaddr_storage address;
    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(server, (struct sockaddr *)&address, loopback(AF_INET, 0, &address)) == 0);
    socklen_t length = loopback(AF_INET, local_port(server), &address);
    struct mmsghdr out[4], in[8];
    struct iovec out_part[4], in_part[8];
    static char texts[4][16], buffers[8][16];
    struct sockaddr_in from[8];
    memset(out, 0, sizeof out);
    for (int i = 0; i < 4; i++) {
        out_part[i] = (struct iovec){texts[i], (size_t)sprintf(texts[i], "message %d%.*s", i, i, "...")};
        out[i].msg_hdr = (struct msghdr){.msg_iov = &out_part[i], .msg_iovlen = 1, .msg_name = &address, .msg_namelen = length};
    }
    CHECK(sendmmsg(client, out, 4, 0) == 4);
    for (int i = 0; i < 4; i++)
        CHECK(out[i].msg_len == out_part[i].iov_len);
    memset(in, 0, sizeof in);
    for (int i = 0; i < 8; i++) {
        in_part[i] = (struct iovec){buffers[i], sizeof buffers[i]};
        in[i].msg_hdr = (struct msghdr){.msg_iov = &in_part[i], .msg_iovlen = 1, .msg_name = &from[i], .msg_namelen = sizeof from[i]};
    }
    CHECK(recvmmsg(server, in, 3, 0, NULL) == 3);
    CHECK(recvmmsg(server, in + 3, 5, MSG_WAITFORONE, NULL) == 1);
    for (int i = 0; i < 4; i++) {
        CHECK(in[i].msg_len == out[i].msg_len && memcmp(buffers[i], texts[i], in[i].msg_len) == 0);
        CHECK(in[i].msg_hdr.msg_namelen == sizeof from[i] && ntohs(from[i].sin_port) == local_port(client));
    }
    CHECK_ERRNO(recvmmsg(server, in, 8, MSG_DONTWAIT, NULL), EAGAIN);
    say("four at once");

    /* As in Linux the time is checked after a datagram only. */
    struct timespec none = {0};
    CHECK(sendmmsg(client, out, 2, 0) == 2);
    CHECK(recvmmsg(server, in, 8, 0, &none) == 1);
    CHECK(recvmmsg(server, in, 8, MSG_DONTWAIT, NULL) == 1);
    struct timespec bad = {.tv_nsec = 2000000000};
    CHECK_ERRNO(recvmmsg(server, in, 8, 0, &bad), EINVAL);
    /* The second cannot be sent: the first was. */
    out[1].msg_hdr.msg_namelen = 3;
    CHECK(sendmmsg(client, out, 3, 0) == 1);
    CHECK_ERRNO(sendmmsg(client, out + 1, 2, 0), EINVAL);
    CHECK(recvmmsg(server, in, 8, MSG_DONTWAIT, NULL) == 1);
    say("timeout, error after the first");
    return 0;
}
