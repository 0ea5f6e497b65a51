/* Random sequences of calls on UNIX datagram sockets with names, one thread, nothing blocks: names that the system chooses and paths, which are removed and
 * taken again; messages to names, to a peer and to nobody, peeked at, cut, with descriptors and credentials; sockets that are connected, connected again,
 * disconnected, shut and closed with unread messages. Linux and Skein answer alike: results, errors, bytes, senders, descriptors, readiness and the order of
 * ready files.
 *
 * expect: same
 * sequences: 3000
 */
#include "sequence.h"
#include "unix.h"
#include <sys/eventfd.h>

#define MOST_MESSAGES 6
#define MOST_SOCKETS 64
#define PATHS 4

enum kind { NONE, SOCKET, EVENT, EPOLL };
static const char *const names[] = {"none", "socket", "eventfd", "epoll"};

static struct named {
    struct sockaddr_un name;
    /* 0: none. */
    socklen_t length;
    /* Sent to it, no fewer than were not taken. */
    int waiting;
    /* It has sent something without a name: it gets none, which Linux would show with what is on its way (docs/limitations.md). */
    int nameless;
} sockets[MOST_SOCKETS];
static int used;

static char buffer[8192];

static struct named *of(const struct file *f)
{
    return &sockets[f->note];
}

/* What the transcript says for a name. */
static const char *name_of(const struct sockaddr_un *name, socklen_t length)
{
    static char text[160];
    if (length == 0)
        return "nothing";
    if (length == sizeof(sa_family_t))
        return "no name";
    if (name->sun_path[0] != 0) {
        snprintf(text, sizeof text, "%.100s, %u", name->sun_path, length);
        return text;
    }
    for (int i = used - 1; i >= 0; i--)
        if (sockets[i].length == length && memcmp(&sockets[i].name, name, length) == 0) {
            snprintf(text, sizeof text, "name of %d", i);
            return text;
        }
    return "an unknown name";
}

#include "beside.h"

static void note_name(struct file *f)
{
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    memset(&name, 0, sizeof name);
    CHECK(getsockname(f->fd, (struct sockaddr *)&name, &length) == 0);
    of(f)->length = length <= sizeof(sa_family_t) ? 0 : length;
    of(f)->name = name;
}

static void bind_one(struct file *f)
{
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t);
    int path = (int)below(2 * PATHS);
    if (path < PATHS) {
        snprintf(address.sun_path, sizeof address.sun_path, "s%d", path);
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 3);
    }
    tell(bind(f->fd, (struct sockaddr *)&address, length), "bind socket %d %s", f->fd, path < PATHS ? address.sun_path : "");
    note_name(f);
}

static void make(void)
{
    int fds[2];
    if (!room_for(3) || used + 2 > MOST_SOCKETS)
        return;
    switch (below(8)) {
    case 0:
        make_epoll();
        break;
    case 1:
        fds[0] = eventfd(1, EFD_NONBLOCK);
        told("eventfd", fds[0]);
        add(EVENT, fds[0], NULL, NULL);
        break;
    case 2:
        told("socketpair", socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds));
        for (int i = 0; i < 2; i++) {
            sockets[used] = (struct named){.length = 0};
            add(SOCKET, fds[i], NULL, NULL)->note = used++;
        }
        break;
    default:
        fds[0] = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | (below(2) ? SOCK_CLOEXEC : 0), 0);
        told("socket", fds[0]);
        sockets[used] = (struct named){.length = 0};
        struct file *f = add(SOCKET, fds[0], NULL, NULL);
        f->note = used++;
        if (below(3))
            bind_one(f);
        break;
    }
}

/* A name to send to or to connect to: mostly one of a socket, which may be closed; nothing when there is none. */
static socklen_t draw_name(struct sockaddr_un *address, int *to)
{
    *to = -1;
    if (used == 0)
        return 0;
    if (below(6) == 0) {
        memset(address, 0, sizeof *address);
        address->sun_family = AF_UNIX;
        snprintf(address->sun_path, sizeof address->sun_path, "s%u", below(PATHS + 1));
        socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 3);
        for (int i = 0; i < used; i++)
            if (sockets[i].length == length && memcmp(address, &sockets[i].name, length) == 0 &&
                sockets[i].waiting >= MOST_MESSAGES)
                return 0;
        return length;
    }
    *to = (int)below((uint32_t)used);
    *address = sockets[*to].name;
    return sockets[*to].waiting >= MOST_MESSAGES ? 0 : sockets[*to].length;
}

/* Somebody may have been sent a message. */
static void count_sent(const struct sockaddr_un *address, socklen_t length)
{
    for (int i = 0; i < used; i++)
        if (length == 0 || (sockets[i].length == length && memcmp(address, &sockets[i].name, length) == 0))
            sockets[i].waiting++;
}

static int peer_is_full(void)
{
    for (int i = 0; i < used; i++)
        if (sockets[i].waiting >= MOST_MESSAGES)
            return 1;
    return 0;
}

static void send_some(struct file *f)
{
    struct sockaddr_un address, peer;
    int to;
    socklen_t length = below(2) ? draw_name(&address, &to) : 0, peer_length = sizeof peer;
    /* The error for a lost empty message depends on the version of Linux; so does whether an error without a peer is an edge. */
    size_t n = 1 + (below(3) ? below(40) : below(3000));
    for (size_t i = 0; i < n; i++)
        buffer[i] = (char)below(256);
    if (length == 0 && (peer_is_full() || getpeername(f->fd, (struct sockaddr *)&peer, &peer_length) != 0))
        return;
    struct file *given = below(4) == 0 ? some_of(EVENT) : NULL;
    ssize_t sent;
    if (given != NULL || below(3) == 0) {
        union control control;
        memset(&control, 0, sizeof control);
        struct iovec parts[2] = {{buffer, n / 3}, {buffer + n / 3, n - n / 3}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_name = length ? &address : NULL};
        message.msg_namelen = length;
        int count = 0;
        if (given != NULL) {
            count = put_descriptors(&message, &control, given->fd);
        }
        sent = sendmsg(f->fd, &message, MSG_NOSIGNAL);
        tell(sent, "sendmsg socket %d, %zu, %d descriptors to %s", f->fd, n, count, name_of(&address, length));
    } else {
        sent = sendto(f->fd, buffer, n, MSG_NOSIGNAL, length ? (struct sockaddr *)&address : NULL, length);
        tell(sent, "sendto socket %d, %zu to %s", f->fd, n, name_of(&address, length));
    }
    if (sent >= 0)
        count_sent(&address, length);
    note_name(f);
    of(f)->nameless |= sent >= 0 && of(f)->length == 0;
}

static void take_some(struct file *f)
{
    size_t n = below(6) == 0 ? 0 : below(3) ? below(60) : below(4000);
    int flags = (below(4) == 0 ? MSG_PEEK : 0) | (below(4) == 0 ? MSG_TRUNC : 0);
    struct sockaddr_un name;
    memset(&name, 0, sizeof name);
    ssize_t got;
    if (below(2)) {
        got = take_message(f, buffer, n, &flags);
    } else {
        socklen_t length = sizeof name;
        got = recvfrom(f->fd, buffer, n, flags, (struct sockaddr *)&name, &length);
        tell(got, "recvfrom socket %d, %zu, %x", f->fd, n, (unsigned)flags);
        if (got >= 0)
            say("  from %s", name_of(&name, length));
    }
    if (got < 0)
        return;
    say("  %08x", hash(buffer, got < (ssize_t)n ? got : (ssize_t)n));
    if (!(flags & MSG_PEEK) && of(f)->waiting > 0)
        of(f)->waiting--;
}

static void connect_one(struct file *f)
{
    struct sockaddr_un address;
    int to;
    if (below(4) == 0) {
        memset(&address, 0, sizeof address);
        address.sun_family = AF_UNSPEC;
        told_of("connect to nothing", f, 0, connect(f->fd, (struct sockaddr *)&address, sizeof address));
        return;
    }
    socklen_t length = draw_name(&address, &to);
    if (length == 0)
        return;
    tell(connect(f->fd, (struct sockaddr *)&address, length), "connect socket %d to %s", f->fd, name_of(&address, length));
    note_name(f);
}

static void ask(struct file *f)
{
    struct sockaddr_un name;
    socklen_t length = sizeof name, size;
    int value = 0, rc;
    memset(&name, 0, sizeof name);
    size = sizeof value;
    switch (below(8)) {
    case 0:
        rc = getsockname(f->fd, (struct sockaddr *)&name, &length);
        told_of("getsockname", f, 0, rc);
        say("  %s", name_of(&name, length));
        break;
    case 1:
    case 2:
        rc = getpeername(f->fd, (struct sockaddr *)&name, &length);
        told_of("getpeername", f, 0, rc);
        if (rc == 0)
            say("  %s", name_of(&name, length));
        break;
    case 3:
        told_of("FIONREAD", f, 0, ioctl(f->fd, FIONREAD, &value));
        say("  %d", value);
        break;
    case 4:
        told_of("SO_ERROR", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &value, &size));
        say("  %d", value);
        break;
    case 5:
        value = (int)below(2);
        if (value && of(f)->nameless)
            break;
        told_of("set SO_PASSCRED", f, value, setsockopt(f->fd, SOL_SOCKET, SO_PASSCRED, &value, sizeof value));
        break;
    case 6:
        told_of("SO_PASSCRED", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_PASSCRED, &value, &size));
        say("  %d", value);
        break;
    default:
        told_of("listen", f, 0, listen(f->fd, 1));
        break;
    }
}

static void shut(struct file *f)
{
    struct sockaddr_un peer;
    socklen_t length = sizeof peer;
    int how = (int)below(4);
    if (how > 0 && how < 3 && getpeername(f->fd, (struct sockaddr *)&peer, &length) != 0)
        /* Without a peer and shut to write, the error depends on the version of Linux. */
        how = 0;
    told_of("shutdown", f, how, shutdown(f->fd, how));
}

static void remove_path(void)
{
    char path[8];
    snprintf(path, sizeof path, "s%u", below(PATHS));
    tell(unlink(path), "unlink %s", path);
}

static void act(void)
{
    struct file *f = some_of(SOCKET), *other = some();
    if (f == NULL || below(5) == 0) {
        make();
        return;
    }
    switch (below(17)) {
    case 0:
    case 1:
    case 2:
    case 3:
        send_some(f);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
        take_some(f);
        break;
    case 8:
    case 9:
        connect_one(f);
        break;
    case 10:
        if (below(4) == 0)
            shut(f);
        else if (below(2))
            remove_path();
        else if (!of(f)->nameless)
            bind_one(f);
        break;
    case 11:
        duplicate(f);
        break;
    case 12:
        ask(f);
        break;
    case 13:
        if (below(2))
            close_one(f);
        else
            poll_all();
        break;
    default:
        /* Each message that a receiver has taken is an edge for its sender in Linux, here for senders that are connected (docs/limitations.md). */
        use_epoll(other, other != NULL && other->kind == SOCKET ? ~(uint32_t)EPOLLOUT : ~0u);
        break;
    }
}

static void end(void)
{
    close_all();
    for (int i = 0; i < PATHS; i++) {
        char path[8];
        snprintf(path, sizeof path, "s%d", i);
        unlink(path);
    }
    used = 0;
}

int main(int argc, char **argv)
{
    kind_names = names;
    epoll_kind = EPOLL;
    given_kind = EVENT;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
