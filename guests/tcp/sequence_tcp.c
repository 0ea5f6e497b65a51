/* Random sequences of calls on TCP sockets that are connected to each other over the loopback interface, one thread, nothing blocks: listeners,
 * connections that are made, accepted, refused, half closed and reset, unread data at the end, options, peeks, epoll sets and poll. Linux and Skein
 * answer alike: results, errors, bytes, readiness and the order of ready files.
 *
 * expect: same
 * sequences: 3000
 */
#include "sequence.h"
#include "loopback.h"
#include <sys/uio.h>

/* The most unread bytes of a connection: capacities beyond that are not compared. */
#define MOST_BYTES 12000

enum kind { NONE, FRESH, BOUND, LISTENER, STREAM, EPOLL };
static const char *const names[] = {"none", "fresh", "bound", "listener", "stream", "epoll"};

static char buffer[16384];

/* Both directions of a connection, by the port of the end that began it, until it is accepted. */
static struct link {
    int port;
    struct direction *there, *back;
} links[64];
static unsigned links_used;

static socklen_t name_of(int fd, int (*of)(int, struct sockaddr *, socklen_t *), struct sockaddr_storage *name)
{
    socklen_t length = sizeof *name;
    return of(fd, (struct sockaddr *)name, &length) == 0 ? length : 0;
}

static int new_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    told("socket", fd);
    CHECK(fd >= 0);
    /* Small pieces would wait for an acknowledgement that is held back for 40 ms. */
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    return fd;
}

/* A socket that keeps its port in every case: Linux takes a port back that it has chosen itself. */
static int bound_socket(void)
{
    struct sockaddr_storage address;
    int fd = new_socket();
    do {
        int probe = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(bind(probe, (struct sockaddr *)&address, loopback(AF_INET, 0, &address)) == 0);
        loopback(AF_INET, local_port(probe), &address);
        CHECK(close(probe) == 0);
    } while (bind(fd, (struct sockaddr *)&address, sizeof(struct sockaddr_in)) != 0);
    return fd;
}

static void connect_to(int fd, struct file *to, struct file *from)
{
    struct sockaddr_storage name;
    socklen_t length = name_of(to->fd, getsockname, &name);
    if (local_port(fd) == local_port(to->fd))
        /* To itself, by another descriptor: refused here (docs/limitations.md). */
        return;
    int rc = connect(fd, (struct sockaddr *)&name, length);
    arrived();
    tell(rc, "connect %d to %s %d", fd, kind_names[to->kind], to->fd);
    struct link *link = &links[links_used++ % 64];
    *link = (struct link){.port = local_port(fd), .there = fresh(), .back = fresh()};
    if (from == NULL)
        from = add(STREAM, fd, NULL, NULL);
    from->kind = STREAM;
    from->out = link->there;
    from->in = link->back;
}

static void take_connection(struct file *f)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    if (!room_for(1))
        return;
    int fd = accept4(f->fd, (struct sockaddr *)&name, &length, SOCK_NONBLOCK | (below(2) ? SOCK_CLOEXEC : 0));
    told_of("accept4", f, 0, fd);
    if (fd < 0)
        return;
    int one = 1;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    struct direction *out = NULL, *in = NULL;
    for (int i = 0; i < 64; i++)
        if (links[i].port == ntohs(((struct sockaddr_in *)&name)->sin_port)) {
            out = links[i].back;
            in = links[i].there;
        }
    /* Not if the other end was connected again, from another port. */
    if (out == NULL) {
        out = fresh();
        in = fresh();
    }
    add(STREAM, fd, out, in);
}

static void make(void)
{
    if (!room_for(4))
        return;
    int fd;
    switch (below(6)) {
    case 0:
        add(FRESH, new_socket(), NULL, NULL);
        break;
    case 1:
        add(BOUND, bound_socket(), NULL, NULL);
        break;
    case 2:
        fd = bound_socket();
        told("listen", listen(fd, 64));
        add(LISTENER, fd, NULL, NULL);
        break;
    case 3: {
        struct file *listener = some_of(LISTENER);
        if (listener != NULL)
            connect_to(new_socket(), listener, NULL);
        break;
    }
    case 4: {
        struct file *listener = some_of(LISTENER);
        if (listener != NULL) {
            connect_to(new_socket(), listener, NULL);
            take_connection(listener);
        }
        break;
    }
    default:
        make_epoll();
        break;
    }
}

static void send_some(struct file *f)
{
    static const int all_flags[] = {0, 0, MSG_DONTWAIT, MSG_MORE, MSG_DONTROUTE};
    int n = (int)(below(3) ? below(40) : below(3000));
    for (int i = 0; i < n; i++)
        buffer[i] = (char)(below(256));
    if (f->out != NULL && f->out->bytes + n > MOST_BYTES)
        return;
    struct iovec parts[2] = {{buffer, (size_t)n / 3}, {buffer + n / 3, (size_t)(n - n / 3)}};
    int flags = ONE_OF(all_flags);
    ssize_t sent;
    switch (below(4)) {
    case 0:
        sent = send(f->fd, buffer, (size_t)n, flags & ~MSG_MORE);
        break;
    case 1:
        sent = write(f->fd, buffer, (size_t)n);
        break;
    case 2:
        sent = writev(f->fd, parts, 2);
        break;
    default: {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        sent = sendmsg(f->fd, &message, MSG_NOSIGNAL);
        break;
    }
    }
    arrived();
    told_of("send", f, n, sent);
    if (sent > 0 && f->out != NULL)
        f->out->bytes += (int)sent;
}

static void take_some(struct file *f)
{
    size_t n = below(3) ? below(60) : below(4000);
    static const int all_flags[] = {0, 0, 0, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_PEEK | MSG_TRUNC, MSG_DONTWAIT};
    int flags = ONE_OF(all_flags);
    ssize_t got;
    memset(buffer, 0, n);
    struct iovec parts[2] = {{buffer, n / 4}, {buffer + n / 4, n - n / 4}};
    switch (below(4)) {
    case 0:
        flags = 0;
        got = read(f->fd, buffer, n);
        break;
    case 1:
        flags = 0;
        got = readv(f->fd, parts, 2);
        break;
    case 2: {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        got = recvmsg(f->fd, &message, flags);
        break;
    }
    default:
        got = recv(f->fd, buffer, n, flags);
        break;
    }
    arrived();
    tell(got, "receive %s %d, %zu, %x", kind_names[f->kind], f->fd, n, (unsigned)flags);
    if (got > 0) {
        say("  %08x", hash(buffer, (ssize_t)n < got ? (ssize_t)n : got));
        if (f->in != NULL && !(flags & MSG_PEEK))
            f->in->bytes -= (int)got;
    }
}

static void ask(struct file *f)
{
    static const struct {
        const char *name;
        int level, option;
    } options[] = {
        {"SO_TYPE", SOL_SOCKET, SO_TYPE},
        {"SO_ERROR", SOL_SOCKET, SO_ERROR},
        {"SO_ERROR", SOL_SOCKET, SO_ERROR},
        {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN},
        {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN},
        {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL},
        {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},
        {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR},
        {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST},
        {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE},
        {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY},
        {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE},
        {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT},
    };
    struct sockaddr_storage name;
    int value = 0, which = (int)below(sizeof options / sizeof options[0]);
    socklen_t length = sizeof value;
    switch (below(6)) {
    case 0:
        told_of("F_GETFL", f, 0, fcntl(f->fd, F_GETFL) & ~0100000);
        break;
    case 1:
        told_of("FIONREAD", f, 0, ioctl(f->fd, FIONREAD, &value));
        say("  %d", value);
        break;
    case 2:
        told_of("getpeername", f, 0, name_of(f->fd, getpeername, &name) == 0 ? -1 : 0);
        break;
    case 3:
        told_of("getsockname", f, 0, name_of(f->fd, getsockname, &name) == 0 ? -1 : 0);
        break;
    default:
        told_of(options[which].name, f, 0,
                getsockopt(f->fd, options[which].level, options[which].option, &value, &length));
        say("  %d", value);
        break;
    }
}

static void set(struct file *f)
{
    struct linger linger = {.l_onoff = below(3) > 0, .l_linger = 0};
    int value = (int)below(2), number = 10 + (int)below(100);
    switch (below(5)) {
    case 0:
    case 1:
        tell(setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), "SO_LINGER %s %d, %d",
             kind_names[f->kind], f->fd, linger.l_onoff);
        break;
    case 2:
        told_of("set SO_KEEPALIVE", f, value, setsockopt(f->fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
        break;
    case 3:
        told_of("set TCP_KEEPIDLE", f, number, setsockopt(f->fd, IPPROTO_TCP, TCP_KEEPIDLE, &number, sizeof number));
        break;
    default:
        told_of("set SO_REUSEADDR", f, value, setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
        break;
    }
}

/* Whether a socket has begun a connection, perhaps by another descriptor. */
static int has_connected(const struct file *f)
{
    for (int i = 0; i < 64; i++)
        if (links[i].port != 0 && links[i].port == local_port(f->fd))
            return 1;
    return 0;
}

/* Calls on a socket that most kinds refuse. */
static void misuse(struct file *f)
{
    struct file *to = some_of(below(3) ? LISTENER : BOUND);
    struct sockaddr_storage address;
    switch (below(4)) {
    case 0:
        /* Not after a shutdown that failed: EINVAL in Linux if the connection was refused before (docs/limitations.md). */
        if (to != NULL && to != f && f->kind != LISTENER && f->kind != EPOLL && f->kind != STREAM) {
            if (!f->note || !has_connected(f))
                connect_to(f->fd, to, f);
        } else if (to != NULL && to != f && !f->note) {
            socklen_t length = name_of(to->fd, getsockname, &address);
            int rc = connect(f->fd, (struct sockaddr *)&address, length);
            arrived();
            told_of("connect again", f, 0, rc);
        }
        break;
    case 1:
        if (f->kind == FRESH || f->kind == BOUND)
            break;
        told_of("bind again", f, 0, bind(f->fd, (struct sockaddr *)&address, loopback(AF_INET, 0, &address)));
        break;
    case 2:
        /* Nor after a shutdown: Linux passes it on to the connections (docs/limitations.md). */
        if (f->kind == FRESH || f->note)
            break;
        told_of("listen", f, 0, listen(f->fd, 64));
        break;
    default:
        if (f->kind != LISTENER)
            told_of("accept", f, 0, accept(f->fd, NULL, NULL));
        break;
    }
}

static void act(void)
{
    struct file *f = some(), *other = some();
    if (f == NULL || below(4) == 0) {
        make();
        return;
    }
    if (f->kind != STREAM && f->kind != LISTENER && below(2))
        f = some();
    if (f == NULL)
        return;
    switch (below(15)) {
    case 0:
    case 1:
    case 2:
        send_some(f);
        break;
    case 3:
    case 4:
    case 5:
        take_some(f);
        break;
    case 6:
        if (below(2))
            duplicate(f);
        else
            set(f);
        arrived();
        break;
    case 7:
        ask(f);
        break;
    case 8:
        close_one(f);
        arrived();
        break;
    case 9: {
        int how = (int)below(4), rc = shutdown(f->fd, how);
        arrived();
        told_of("shutdown", f, how, rc);
        for (int i = 0; i < FILES; i++)
            files[i].note |= rc != 0 && files[i].out == f->out;
        break;
    }
    case 10:
        poll_all();
        break;
    case 11:
        if (f->kind == LISTENER)
            take_connection(f);
        else
            misuse(f);
        break;
    default:
        use_epoll(other, ~0u);
        break;
    }
}

static void end(void)
{
    /* No socket stays in TIME_WAIT for a minute. */
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < FILES; i++)
        if (files[i].kind != NONE && files[i].kind != EPOLL)
            setsockopt(files[i].fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close_all();
    links_used = 0;
    memset(links, 0, sizeof links);
    arrived();
}

int main(int argc, char **argv)
{
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    loopback_begin();
    kind_names = names;
    epoll_kind = EPOLL;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
