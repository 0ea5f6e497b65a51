/* Random sequences of calls on UNIX streams and packet sockets that are bound, connected and accepted, one thread, nothing blocks: names that the system chooses
 * and paths, backlogs, wrong types, peers' names and credentials; bytes and packets with descriptors and credentials beside them, peeked at, cut and mixed; half closed
 * connections, and closed ones with unread data. Linux and Skein answer alike: results, errors, bytes, descriptors, readiness and the order of ready files.
 *
 * expect: same
 * sequences: 3000
 */
#include "sequence.h"
#include "unix.h"
#include <sys/eventfd.h>

/* The most that is sent on a connection in each direction. */
#define MOST_BYTES 20000
#define MOST_MESSAGES 20
#define PATHS 3

enum kind { NONE, FRESH, LISTENER, STREAM, PACKETS, EVENT, EPOLL };
static const char *const names[] = {"none", "fresh", "listener", "stream", "packets", "eventfd", "epoll"};
static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

static char buffer[8192];

/* What the transcript says for a name: one that the system has chosen has no meaning. */
static const char *name_of(const struct sockaddr_un *name, socklen_t length)
{
    static char text[160];
    if (length == 0)
        return "nothing";
    if (length == sizeof(sa_family_t))
        return "no name";
    snprintf(text, sizeof text, "%.100s, %u", name->sun_path[0] != 0 ? name->sun_path : "a name", length);
    return text;
}

#include "beside.h"

/* A path, as a name. */
static socklen_t draw_path(struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "u%u", below(PATHS));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 3);
}

/* Its note is the type's number. */
static void bind_one(struct file *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = below(2) ? sizeof(sa_family_t) : draw_path(&address);
    tell(bind(f->fd, (struct sockaddr *)&address, length), "bind %s %d %s", kind_names[f->kind], f->fd,
         name_of(&address, length));
}

/* It has sent packets: a name that it gets now would be theirs for Linux (docs/limitations.md). */
static int has_sent_packets(const struct file *f)
{
    return f->note == 1 && f->out != NULL && f->out->messages > 0;
}

static void listen_at(struct file *f)
{
    int backlog = (int)below(4) - 1, rc = listen(f->fd, backlog);
    told_of("listen", f, backlog, rc);
    if (rc == 0)
        f->kind = LISTENER;
}

static void make(void)
{
    int fds[2], type = (int)below(2);
    struct file *f;
    if (!room_for(4))
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
        tell(socketpair(AF_UNIX, types[type] | SOCK_NONBLOCK, 0, fds), "socketpair %d", type);
        for (int i = 0; i < 2; i++)
            add(type == 0 ? STREAM : PACKETS, fds[i], fresh(), NULL)->note = type;
        break;
    default:
        fds[0] = socket(AF_UNIX, types[type] | SOCK_NONBLOCK | (below(2) ? SOCK_CLOEXEC : 0), 0);
        tell(fds[0], "socket %d", type);
        f = add(FRESH, fds[0], fresh(), NULL);
        f->note = type;
        if (below(2))
            bind_one(f);
        if (below(2))
            listen_at(f);
        break;
    }
}

static void connect_one(struct file *f)
{
    struct sockaddr_un address;
    struct file *to = some_of(LISTENER);
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    if (to == NULL || below(6) == 0)
        length = draw_path(&address);
    else
        CHECK(getsockname(to->fd, (struct sockaddr *)&address, &length) == 0);
    int rc = connect(f->fd, (struct sockaddr *)&address, length);
    told_of("connect", f, to == NULL ? -1 : to->fd, rc);
    if (rc == 0)
        f->kind = f->note == 0 ? STREAM : PACKETS;
}

static void accept_one(struct file *f)
{
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    memset(&name, 0, sizeof name);
    if (!room_for(3))
        return;
    int fd = accept4(f->fd, (struct sockaddr *)&name, &length, SOCK_NONBLOCK | (below(2) ? SOCK_CLOEXEC : 0));
    told_of("accept4", f, 0, fd);
    if (fd < 0)
        return;
    say("  from %s", name_of(&name, length));
    add(f->note == 0 ? STREAM : PACKETS, fd, fresh(), NULL)->note = f->note;
}

static void send_some(struct file *f)
{
    /* Not empty: an empty packet cannot be told from the end. */
    size_t n = 1 + (below(3) ? below(40) : below(2000));
    if (f->out != NULL && (f->out->bytes + (int)n > MOST_BYTES || f->out->messages >= MOST_MESSAGES))
        return;
    for (size_t i = 0; i < n; i++)
        buffer[i] = (char)below(256);
    struct file *given = below(3) == 0 ? some_of(EVENT) : NULL;
    ssize_t sent;
    if (given != NULL || below(3) == 0) {
        union control control;
        memset(&control, 0, sizeof control);
        struct iovec parts[2] = {{buffer, n / 3}, {buffer + n / 3, n - n / 3}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        int count = 0;
        if (given != NULL) {
            count = put_descriptors(&message, &control, given->fd);
        } else if (below(3) == 0) {
            struct ucred own = {.pid = getpid(), .uid = getuid(), .gid = getgid()};
            count = -1;
            message.msg_control = &control;
            message.msg_controllen = CMSG_SPACE(sizeof own);
            control.head.cmsg_level = SOL_SOCKET;
            control.head.cmsg_type = SCM_CREDENTIALS;
            control.head.cmsg_len = CMSG_LEN(sizeof own);
            memcpy(CMSG_DATA(&control.head), &own, sizeof own);
        }
        sent = sendmsg(f->fd, &message, MSG_NOSIGNAL);
        tell(sent, "sendmsg %s %d, %zu, %d beside", kind_names[f->kind], f->fd, n, count);
    } else {
        sent = send(f->fd, buffer, n, MSG_NOSIGNAL);
        told_of("send", f, (long)n, sent);
    }
    if (sent > 0 && f->out != NULL) {
        f->out->bytes += (int)sent;
        f->out->messages++;
    }
}

static void take_some(struct file *f)
{
    size_t n = 1 + (below(3) ? below(60) : below(4000));
    int flags = (below(4) == 0 ? MSG_PEEK : 0) | (below(6) == 0 ? MSG_WAITALL : 0);
    ssize_t got;
    if (f->kind == PACKETS && below(4) == 0)
        flags |= MSG_TRUNC;
    if (below(3) && (f->note != 0 || !(flags & MSG_PEEK))) {
        /* A peek at a stream shows the descriptors beside bytes that it does not reach (docs/limitations.md). */
        got = take_message(f, buffer, n, &flags);
    } else if (below(2)) {
        got = recv(f->fd, buffer, n, flags);
        tell(got, "recv %s %d, %zu, %x", kind_names[f->kind], f->fd, n, (unsigned)flags);
    } else {
        got = read(f->fd, buffer, n);
        told_of("read", f, (long)n, got);
    }
    if (got > 0)
        say("  %08x", hash(buffer, got < (ssize_t)n ? got : (ssize_t)n));
}

static void ask(struct file *f)
{
    struct sockaddr_un name;
    struct ucred peer;
    socklen_t length = sizeof name, size;
    int value = 0, rc;
    memset(&name, 0, sizeof name);
    memset(&peer, 0, sizeof peer);
    size = sizeof value;
    switch (below(9)) {
    case 0:
        rc = getsockname(f->fd, (struct sockaddr *)&name, &length);
        told_of("getsockname", f, 0, rc);
        say("  %s", name_of(&name, length));
        break;
    case 1:
        rc = getpeername(f->fd, (struct sockaddr *)&name, &length);
        told_of("getpeername", f, 0, rc);
        if (rc == 0)
            say("  %s", name_of(&name, length));
        break;
    case 2:
        told_of("FIONREAD", f, 0, ioctl(f->fd, FIONREAD, &value));
        say("  %d", value);
        break;
    case 3:
        told_of("SO_ERROR", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &value, &size));
        say("  %d", value);
        break;
    case 4:
    case 5:
        value = (int)below(2);
        if (has_sent_packets(f))
            break;
        told_of("set SO_PASSCRED", f, value, setsockopt(f->fd, SOL_SOCKET, SO_PASSCRED, &value, sizeof value));
        break;
    case 6:
        size = sizeof peer;
        told_of("SO_PEERCRED", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size));
        say("  %s, %d", peer.pid == getpid() ? "itself" : peer.pid == 0 ? "nobody" : "another", (int)peer.uid);
        break;
    case 7:
        told_of("SO_ACCEPTCONN", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size));
        say("  %d", value);
        break;
    default:
        told_of("F_GETFL", f, 0, fcntl(f->fd, F_GETFL) & ~0100000);
        break;
    }
}

static void shut(struct file *f)
{
    int how = (int)below(4);
    told_of("shutdown", f, how, shutdown(f->fd, how));
}

static void remove_path(void)
{
    char path[8];
    snprintf(path, sizeof path, "u%u", below(PATHS));
    tell(unlink(path), "unlink %s", path);
}

static struct file *some_socket(void)
{
    for (int i = 0; i < 8; i++) {
        struct file *f = some();
        if (f != NULL && f->kind != EVENT && f->kind != EPOLL)
            return f;
    }
    return NULL;
}

static void act(void)
{
    struct file *f = some_socket(), *other = some();
    if (f == NULL || below(5) == 0) {
        make();
        return;
    }
    switch (below(18)) {
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
    case 10:
        if (f->kind == LISTENER)
            accept_one(f);
        else if (f->kind == FRESH || (below(3) == 0 && !has_sent_packets(f)))
            connect_one(f);
        else if ((f = some_of(LISTENER)) != NULL)
            accept_one(f);
        break;
    case 11:
        switch (below(5)) {
        case 0:
            shut(f);
            break;
        case 1:
            if (!has_sent_packets(f))
                bind_one(f);
            break;
        case 2:
            listen_at(f);
            break;
        default:
            remove_path();
            break;
        }
        break;
    case 12:
        duplicate(f);
        break;
    case 13:
        ask(f);
        break;
    case 14:
        if (below(2))
            close_one(f);
        else
            poll_all();
        break;
    default:
        /* Each buffer that the other end has read is an edge for Linux (docs/limitations.md). */
        use_epoll(other, other != NULL && other->kind != EVENT && other->kind != EPOLL ? ~(uint32_t)EPOLLOUT : ~0u);
        break;
    }
}

static void end(void)
{
    close_all();
    for (int i = 0; i < PATHS; i++) {
        char path[8];
        snprintf(path, sizeof path, "u%d", i);
        unlink(path);
    }
}

int main(int argc, char **argv)
{
    kind_names = names;
    epoll_kind = EPOLL;
    given_kind = EVENT;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
