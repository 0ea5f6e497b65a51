/* SO_PEERCRED, SO_PASSCRED, SCM_CREDENTIALS.
 *
 * expect: same
 */
#include "unix.h"

static ssize_t receive_cred(int fd, char *data, size_t length, struct ucred *cred)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {data, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    memset(cred, 0x55, sizeof *cred);
    if (head) {
        CHECK(head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS);
        memcpy(cred, CMSG_DATA(head), sizeof *cred);
    }
    return n;
}

static ssize_t send_cred(int fd, const char *text, struct ucred cred)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    memset(&control, 0, sizeof control);
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_CREDENTIALS;
    control.head.cmsg_len = CMSG_LEN(sizeof cred);
    memcpy(CMSG_DATA(&control.head), &cred, sizeof cred);
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    return sendmsg(fd, &message, 0);
}

static int is_me(struct ucred cred)
{
    return cred.pid == getpid() && cred.uid == getuid() && cred.gid == getgid();
}

int main(void)
{
    int s[2], d[2], on = 1;
    char buffer[64];
    struct ucred cred, me = {getpid(), getuid(), getgid()};
    socklen_t length = sizeof cred;
    int listener = unix_listen(SOCK_STREAM, "@guest cred", 2);
    int client = unix_connect(SOCK_STREAM, "@guest cred");
    int server = accept(listener, NULL, NULL);
    CHECK(getsockopt(server, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 && length == sizeof cred && is_me(cred));
    CHECK(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 && is_me(cred));
    int fresh = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(getsockopt(fresh, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 && cred.pid == 0 && cred.uid == (uid_t)-1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, d) == 0);
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 && is_me(cred));
    say("peers");

    CHECK(write(s[0], "nobody", 6) == 6);
    CHECK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    CHECK(setsockopt(d[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    CHECK(write(s[0], "me", 2) == 2 && write(s[0], " too", 4) == 4);
    CHECK(receive_cred(s[1], buffer, sizeof buffer, &cred) == 6 && cred.pid == 0 && cred.uid == 65534);
    CHECK(receive_cred(s[1], buffer, sizeof buffer, &cred) == 6 && is_me(cred) && memcmp(buffer, "me too", 6) == 0);
    CHECK(send_cred(s[0], "said", me) == 4);
    CHECK(receive_cred(s[1], buffer, sizeof buffer, &cred) == 4 && is_me(cred));
    CHECK(write(d[0], "datagram", 8) == 8);
    CHECK(receive_cred(d[1], buffer, sizeof buffer, &cred) == 8 && is_me(cred));
    CHECK(write(d[1], "back", 4) == 4);
    CHECK(receive_cred(d[0], buffer, sizeof buffer, &cred) == 4 && cred.pid == 0x55555555);
    say("passed");
    return 0;
}
