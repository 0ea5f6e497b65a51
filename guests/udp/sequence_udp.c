/* Random sequences of calls on UDP sockets that send to each other over the loopback interface, one thread, nothing blocks: sockets of both IP versions,
 * bound or not, connected, connected again and disconnected, shut, with messages that are empty, cut, peeked at, sent several at a time, or too long.
 * Linux and Skein answer alike: results, errors, bytes, senders, flags, readiness and the order of ready files. Nothing is sent to where no socket takes it.
 *
 * expect: same
 * sequences: 3000
 */
#include "sequence.h"
#include "loopback.h"
#include <sys/uio.h>

#define MOST_MESSAGES 8
#define MOST_SOCKETS 64

enum kind { NONE, SOCKET, EPOLL };
static const char *const names[] = {"none", "socket", "epoll"};

/* The sockets of a sequence, by the notes of their files. */
static struct udp {
    int family;
    /* It takes both IP versions. */
    int dual;
    /* 0: none yet. */
    int port;
    /* The port that it is connected to; 0: none. */
    int to;
    /* It was bound, not by a call that needs a port. */
    int bound;
    /* Datagrams that were not taken, no more than this. */
    int waiting;
} sockets[MOST_SOCKETS];
static int used;
/* All ports that sockets of the sequence have had. */
static int ports[256];
static unsigned ports_used;
/* Linux has given a socket a port that was used before in the sequence, by itself or another one: their names cannot be told apart. */
static int port_came_again;

static char buffer[70000], other_buffer[4096];

static struct udp *of(const struct file *f)
{
    return &sockets[f->note];
}

/* A file of the socket, if one is open. */
static struct file *file_of(int note)
{
    for (int i = 0; i < FILES; i++)
        if (files[i].kind == SOCKET && files[i].note == note)
            return &files[i];
    return NULL;
}

/* A port's socket as the transcript names it. */
static int number_of(int port)
{
    for (int i = 0; i < used; i++)
        if (sockets[i].port == port && file_of(i) != NULL)
            return i;
    return -1;
}

static int port_of(const struct sockaddr_storage *name)
{
    return ntohs(name->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)name)->sin6_port
                                             : ((const struct sockaddr_in *)name)->sin_port);
}

static const char *address_name(const struct sockaddr_storage *name)
{
    static char text[80];
    char ip[INET6_ADDRSTRLEN];
    const void *at = name->ss_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)name)->sin6_addr
                                                 : (const void *)&((const struct sockaddr_in *)name)->sin_addr;
    CHECK(inet_ntop(name->ss_family, at, ip, sizeof ip) != NULL);
    int port = port_of(name);
    snprintf(text, sizeof text, "%s of %d", ip, port == 0 ? -2 : number_of(port));
    return text;
}

/* Notes a socket's own port, which calls may give it or take away. */
static void note_port(struct file *f)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    CHECK(getsockname(f->fd, (struct sockaddr *)&name, &length) == 0);
    int port = port_of(&name), before = of(f)->port;
    of(f)->port = port;
    if (port == 0 || port == before)
        return;
    for (unsigned i = 0; i < ports_used; i++)
        port_came_again |= ports[i] == port;
    CHECK(ports_used < sizeof ports / sizeof ports[0]);
    ports[ports_used++] = port;
}

static int is_void(void)
{
    int again = port_came_again;
    port_came_again = 0;
    return again;
}

/* The address of `to` for `from`, if it takes what `from` sends there; its length. */
static socklen_t address_of(const struct file *from, const struct file *to, struct sockaddr_storage *address)
{
    const struct udp *s = of(from), *t = of(to);
    if (t->port == 0 || (t->to != 0 && t->to != s->port))
        return 0;
    if (s->family == AF_INET)
        return t->family == AF_INET || t->dual ? loopback(AF_INET, t->port, address) : 0;
    if (t->family == AF_INET6)
        return loopback(AF_INET6, t->port, address);
    if (!s->dual || s->to != 0)
        return 0;
    socklen_t length = loopback(AF_INET6, t->port, address);
    CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &((struct sockaddr_in6 *)address)->sin6_addr) == 1);
    return length;
}

static void make(void)
{
    if (!room_for(3) || used == MOST_SOCKETS)
        return;
    if (below(4) == 0) {
        make_epoll();
        return;
    }
    int family = below(3) ? AF_INET : AF_INET6, zero = 0;
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | (below(2) ? SOCK_CLOEXEC : 0), 0);
    tell(fd, "socket %d", family);
    CHECK(fd >= 0);
    struct udp *s = &sockets[used];
    *s = (struct udp){.family = family};
    struct file *f = add(SOCKET, fd, NULL, NULL);
    f->note = used++;
    if (family == AF_INET6)
        CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0);
    struct sockaddr_storage address;
    socklen_t length = loopback(family, 0, &address);
    switch (below(4)) {
    case 0:
        s->dual = family == AF_INET6;
        break;
    case 1:
        /* At all addresses. */
        memset((char *)&address + sizeof(sa_family_t), 0, sizeof address - sizeof(sa_family_t));
        s->dual = family == AF_INET6;
        /* fallthrough */
    default:
        s->bound = 1;
        tell(bind(fd, (struct sockaddr *)&address, length), "  bind to %s", address_name(&address));
        break;
    }
    note_port(f);
}

static size_t draw_length(void)
{
    return below(8) == 0 ? 0 : below(3) ? below(40) : below(3000);
}

static void fill(char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)below(256);
}

/* Where what a socket sends without an address goes, if it is taken there. */
static struct file *peer_of(const struct file *f)
{
    int number = of(f)->to == 0 ? -1 : number_of(of(f)->to);
    struct file *to = number < 0 ? NULL : file_of(number);
    struct sockaddr_storage address;
    return to != NULL && address_of(f, to, &address) != 0 ? to : NULL;
}

static void sent_to(struct file *f, struct file *to, int count)
{
    arrived();
    note_port(f);
    if (to != NULL && count > 0)
        of(to)->waiting += count;
}

static void send_some(struct file *f)
{
    struct file *to = some_of(SOCKET);
    struct sockaddr_storage address;
    socklen_t length = below(3) ? address_of(f, to, &address) : 0;
    size_t n = draw_length();
    fill(buffer, n);
    if (length == 0) {
        to = peer_of(f);
        if (to == NULL && of(f)->to != 0)
            return;
    }
    if (to != NULL && of(to)->waiting + 3 > MOST_MESSAGES)
        return;
    ssize_t sent;
    int count = 1;
    switch (below(6)) {
    case 0: {
        struct iovec parts[2] = {{buffer, n / 2}, {buffer + n / 2, n - n / 2}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_name = length ? &address : NULL};
        message.msg_namelen = length;
        sent = sendmsg(f->fd, &message, MSG_NOSIGNAL);
        told_of("sendmsg", f, (long)n, sent);
        break;
    }
    case 1: {
        struct mmsghdr messages[3];
        struct iovec parts[3];
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < 3; i++) {
            parts[i] = (struct iovec){buffer + i, n};
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
            messages[i].msg_hdr.msg_name = length ? &address : NULL;
            messages[i].msg_hdr.msg_namelen = length;
        }
        fill(buffer, n + 2);
        sent = count = sendmmsg(f->fd, messages, 3, MSG_NOSIGNAL);
        told_of("sendmmsg", f, (long)n, sent);
        for (int i = 0; i < count; i++)
            say("  %u", messages[i].msg_len);
        break;
    }
    case 2:
        if (length == 0) {
            if (n == 0)
                return;
            sent = write(f->fd, buffer, n);
            told_of("write", f, (long)n, sent);
            break;
        }
        /* fallthrough */
    default:
        sent = sendto(f->fd, buffer, n, MSG_NOSIGNAL, length ? (struct sockaddr *)&address : NULL, length);
        tell(sent, "sendto socket %d, %zu to %d", f->fd, n, length ? to->note : -1);
        break;
    }
    sent_to(f, sent >= 0 ? to : NULL, count);
}

static void take_some(struct file *f)
{
    size_t n = below(4) == 0 ? 0 : below(3) ? below(60) : below(4000);
    int flags = (below(4) == 0 ? MSG_PEEK : 0) | (below(4) == 0 ? MSG_TRUNC : 0), taken = 1;
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    memset(&name, 0, sizeof name);
    ssize_t got;
    switch (below(6)) {
    case 0:
    case 1: {
        struct iovec parts[2] = {{buffer, n / 2}, {buffer + n / 2, n - n / 2}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_name = &name, .msg_namelen = sizeof name};
        if (below(8) == 0)
            message.msg_namelen = 4;
        got = recvmsg(f->fd, &message, flags);
        tell(got, "recvmsg socket %d, %zu, %x", f->fd, n, (unsigned)flags);
        if (got >= 0)
            say("  flags %x, name of %u, control %zu", (unsigned)message.msg_flags, message.msg_namelen,
                message.msg_controllen);
        break;
    }
    case 2: {
        struct mmsghdr messages[2];
        struct iovec parts[2] = {{buffer, n}, {other_buffer, sizeof other_buffer}};
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < 2; i++) {
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        taken = recvmmsg(f->fd, messages, 2, flags, NULL);
        tell(taken, "recvmmsg socket %d, %zu, %x", f->fd, n, (unsigned)flags);
        for (int i = 0; i < taken; i++)
            say("  %u, flags %x", messages[i].msg_len, (unsigned)messages[i].msg_hdr.msg_flags);
        got = taken > 0 ? (ssize_t)messages[0].msg_len : -1;
        break;
    }
    case 3:
        flags = 0;
        got = read(f->fd, buffer, n);
        told_of("read", f, (long)n, got);
        break;
    default:
        got = recvfrom(f->fd, buffer, n, flags, (struct sockaddr *)&name, &length);
        tell(got, "recvfrom socket %d, %zu, %x", f->fd, n, (unsigned)flags);
        if (got >= 0)
            say("  name of %u", length);
        break;
    }
    if (got < 0)
        return;
    say("  %08x", hash(buffer, got < (ssize_t)n ? got : (ssize_t)n));
    if (name.ss_family != 0)
        say("  from %s", address_name(&name));
    if (!(flags & MSG_PEEK) && of(f)->waiting >= taken)
        of(f)->waiting -= taken;
}

static void connect_one(struct file *f)
{
    struct sockaddr_storage address;
    struct file *to = some_of(SOCKET);
    struct udp *s = of(f);
    socklen_t length;
    if (below(4) == 0) {
        memset(&address, 0, sizeof address);
        address.ss_family = AF_UNSPEC;
        told_of("connect to nothing", f, 0, connect(f->fd, (struct sockaddr *)&address, sizeof address));
        s->to = 0;
        note_port(f);
        return;
    }
    if (of(to)->port == 0)
        return;
    /* Of the same IP version; it may take nothing from here. */
    length = loopback(s->family, of(to)->port, &address);
    if (s->family != of(to)->family)
        return;
    tell(connect(f->fd, (struct sockaddr *)&address, length), "connect socket %d to %d", f->fd, to->note);
    s->to = of(to)->port;
    s->dual = 0;
    note_port(f);
}

static void ask(struct file *f)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    int value = 0;
    socklen_t size = sizeof value;
    int rc;
    switch (below(8)) {
    case 0:
        rc = getsockname(f->fd, (struct sockaddr *)&name, &length);
        told_of("getsockname", f, 0, rc);
        say("  %u %s", length, address_name(&name));
        break;
    case 1:
        rc = getpeername(f->fd, (struct sockaddr *)&name, &length);
        told_of("getpeername", f, 0, rc);
        if (rc == 0)
            say("  %u %s", length, address_name(&name));
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
        told_of("SO_TYPE", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_TYPE, &value, &size));
        say("  %d", value);
        break;
    case 5:
        told_of("SO_ACCEPTCONN", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size));
        say("  %d", value);
        break;
    case 6:
        told_of("F_GETFL", f, 0, fcntl(f->fd, F_GETFL) & ~0100000);
        break;
    default:
        told_of("lseek", f, 0, lseek(f->fd, 0, SEEK_CUR));
        break;
    }
}

static void misuse(struct file *f)
{
    struct sockaddr_storage address;
    struct udp *s = of(f);
    socklen_t length = loopback(s->family, 0, &address);
    switch (below(9)) {
    case 0:
        told_of("listen", f, 0, listen(f->fd, 1));
        break;
    case 1:
        told_of("accept", f, 0, accept(f->fd, NULL, NULL));
        break;
    case 2:
        if (s->port != 0)
            told_of("bind again", f, 0, bind(f->fd, (struct sockaddr *)&address, length));
        break;
    case 3:
        told_of("sendto port 0", f, 0, sendto(f->fd, buffer, 1, MSG_NOSIGNAL, (struct sockaddr *)&address, length));
        note_port(f);
        break;
    case 4:
        told_of("sendto, short address", f, 0,
                sendto(f->fd, buffer, 1, MSG_NOSIGNAL, (struct sockaddr *)&address, 1 + below(12)));
        note_port(f);
        break;
    case 5:
        address.ss_family = AF_UNIX;
        told_of("sendto, wrong family", f, 0,
                sendto(f->fd, buffer, 1, MSG_NOSIGNAL, (struct sockaddr *)&address, length));
        note_port(f);
        break;
    case 6:
        if (s->port != 0 && s->to == 0 && s->family == AF_INET) {
            length = loopback(AF_INET, s->port, &address);
            told_of("sendto, too long", f, 0,
                    sendto(f->fd, buffer, 65508, MSG_NOSIGNAL, (struct sockaddr *)&address, length));
        }
        break;
    case 7:
        told_of("connect, short address", f, 0, connect(f->fd, (struct sockaddr *)&address, 1 + below(12)));
        note_port(f);
        break;
    default:
        told_of("recv MSG_OOB", f, 0, recv(f->fd, buffer, 1, MSG_OOB));
        break;
    }
}

static void act(void)
{
    struct file *f = some_of(SOCKET), *other = some();
    if (f == NULL || below(5) == 0) {
        make();
        return;
    }
    switch (below(16)) {
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
        connect_one(f);
        break;
    case 9:
        if (below(4) == 0) {
            int how = (int)below(4);
            told_of("shutdown", f, how, shutdown(f->fd, how));
        } else
            duplicate(f);
        break;
    case 10:
        ask(f);
        break;
    case 11:
        misuse(f);
        break;
    case 12:
        if (below(2))
            close_one(f);
        else
            poll_all();
        break;
    default:
        use_epoll(other, ~0u);
        break;
    }
}

static void end(void)
{
    close_all();
    used = 0;
    ports_used = 0;
}

int main(int argc, char **argv)
{
    loopback_begin();
    kind_names = names;
    epoll_kind = EPOLL;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end, .is_void = is_void});
}
