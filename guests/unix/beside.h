/* Shared by random sequences of UNIX sockets: the data beside the bytes. Included behind the guest's `name_of`. */
#ifndef BESIDE_H
#define BESIDE_H

#include "sequence.h"

/* The kind of a descriptor that came with a message. */
static int given_kind;

/* Room for credentials and three descriptors. */
union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(3 * sizeof(int))];
};

/* Adds one to three times this descriptor to a message; answers how often. */
static int put_descriptors(struct msghdr *message, union control *control, int fd)
{
    int count = 1 + (int)below(3);
    message->msg_control = control;
    message->msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    control->head.cmsg_level = SOL_SOCKET;
    control->head.cmsg_type = SCM_RIGHTS;
    control->head.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++)
        memcpy(CMSG_DATA(&control->head) + (size_t)i * sizeof(int), &fd, sizeof(int));
    return count;
}

/* What came beside the bytes. */
static void told_controls(struct msghdr *message)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        CHECK(head->cmsg_level == SOL_SOCKET);
        if (head->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;
            if (head->cmsg_len < CMSG_LEN(sizeof sender)) {
                say("  credentials, cut");
                continue;
            }
            memcpy(&sender, CMSG_DATA(head), sizeof sender);
            say("  credentials of %s, %s", sender.pid == getpid() ? "itself" : sender.pid == 0 ? "nobody" : "another",
                sender.uid == getuid() ? "its user" : "another user");
            continue;
        }
        CHECK(head->cmsg_type == SCM_RIGHTS);
        for (size_t at = 0; at + sizeof(int) <= head->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
            say("  descriptor %d, flags %d", fd, fcntl(fd, F_GETFD));
            if (room_for(3))
                add(given_kind, fd, NULL, NULL);
            else
                CHECK(close(fd) == 0);
        }
    }
}

/* recvmsg of `n` bytes at most, with room for the sender's name and some control messages. */
static ssize_t take_message(struct file *f, char *bytes, size_t n, int *flags)
{
    static const size_t rooms[] = {0, CMSG_LEN(0), CMSG_LEN(sizeof(int)), CMSG_SPACE(2 * sizeof(int)), sizeof(union control)};
    union control control;
    struct sockaddr_un name;
    struct iovec part = {bytes, n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = sizeof name};
    memset(&name, 0, sizeof name);
    message.msg_control = &control;
    message.msg_controllen = below(2) ? sizeof control : ONE_OF(rooms);
    if (message.msg_controllen == 0)
        message.msg_control = NULL;
    if (below(4) == 0)
        *flags |= MSG_CMSG_CLOEXEC;
    ssize_t got = recvmsg(f->fd, &message, *flags);
    tell(got, "recvmsg %s %d, %zu, %x", kind_names[f->kind], f->fd, n, (unsigned)*flags);
    if (got >= 0) {
        say("  flags %x, from %s, control %zu", (unsigned)message.msg_flags, name_of(&name, message.msg_namelen),
            message.msg_controllen);
        told_controls(&message);
    }
    return got;
}

#endif
