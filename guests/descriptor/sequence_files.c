/* Random sequences of calls on descriptors, one thread, nothing blocks: pipes, UNIX sockets of three types, eventfds, epoll sets (level, edge, one-shot),
 * poll, dup, flags, splice, signals by signalfd. Linux and Skein answer every call alike: results, errors, bytes, readiness and the order of
 * ready files. Each sequence begins with nothing open; its number is the seed. The transcript has every call.
 *
 * expect: same
 * sequences: 5000
 */
#include "sequence.h"
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/un.h>

/* The most unread bytes of a file: capacities beyond that are not compared. */
#define MOST_BYTES 12000
#define MOST_MESSAGES 6

enum kind { NONE, READER, WRITER, STREAM, MESSAGES, LISTENER, EVENT, EPOLL, SIGNALS };
static const char *const names[] = {"none",     "reader",  "writer", "stream", "messages",
                                    "listener", "eventfd", "epoll",  "signals"};

static char buffer[16384];

static void make(void)
{
    int fds[2], nonblock = O_NONBLOCK;
    if (!room_for(2))
        return;
    switch (below(7)) {
    case 0: {
        int rc = pipe2(fds, nonblock | (below(2) ? O_CLOEXEC : 0));
        told("pipe2", rc);
        if (rc == 0) {
            struct direction *s = fresh();
            say("  %d %d", fds[0], fds[1]);
            add(READER, fds[0], NULL, s);
            add(WRITER, fds[1], s, NULL);
        }
        break;
    }
    case 1:
    case 2: {
        int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
        int type = types[below(3)];
        int rc = socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, fds);
        told("socketpair", rc);
        if (rc == 0) {
            struct direction *a = fresh(), *b = fresh();
            enum kind kind = type == SOCK_STREAM ? STREAM : MESSAGES;
            say("  %d %d type %d", fds[0], fds[1], type);
            add(kind, fds[0], a, b);
            add(kind, fds[1], b, a);
        }
        break;
    }
    case 3: {
        int fd = eventfd(below(3), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0));
        told("eventfd", fd);
        if (fd >= 0)
            add(EVENT, fd, NULL, NULL);
        break;
    }
    case 4:
        make_epoll();
        break;
    case 5: {
        /* One signal makes several ready in another order (docs/limitations.md). */
        if (some_of(SIGNALS) != NULL)
            break;
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, below(2) ? SIGUSR1 : SIGUSR2);
        int fd = signalfd(-1, &set, SFD_NONBLOCK);
        told("signalfd", fd);
        if (fd >= 0)
            add(SIGNALS, fd, NULL, NULL);
        break;
    }
    case 6: {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        told("socket", fd);
        if (fd < 0)
            break;
        /* The system chooses this name. */
        told("  bind", bind(fd, (struct sockaddr *)&name, sizeof(sa_family_t)));
        told("  listen", listen(fd, 2));
        add(LISTENER, fd, NULL, NULL);
        break;
    }
    }
}

static void connect_to(struct file *f)
{
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    if (!room_for(2) || getsockname(f->fd, (struct sockaddr *)&name, &length) != 0)
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    told("socket", fd);
    int rc = connect(fd, (struct sockaddr *)&name, length);
    told("connect", rc);
    if (rc != 0) {
        told("close", close(fd));
        return;
    }
    if (below(4) == 0) {
        /* Accepted, or left in the backlog. */
        add(STREAM, fd, fresh(), fresh());
        return;
    }
    int taken = accept4(f->fd, NULL, NULL, SOCK_NONBLOCK);
    told("accept4", taken);
    /* It may be an earlier file with unknown content, so it is not written to again. */
    add(STREAM, fd, fresh(), fresh());
    if (taken >= 0)
        add(STREAM, taken, fresh(), fresh());
}

static void send_some(struct file *f)
{
    /* Not empty: the error for a lost empty message depends on the version of Linux. */
    int n = 1 + (int)(below(3) ? below(40) : below(3000));
    if (f->kind == EVENT)
        /* More than eight are an error only since Linux 6.9. */
        n = below(4) ? 8 : (int)below(8);
    for (int i = 0; i < n; i++)
        buffer[i] = (char)(below(256));
    if (f->out != NULL && (f->out->bytes + n > MOST_BYTES || f->out->messages >= MOST_MESSAGES))
        return;
    struct sockaddr_un peer;
    socklen_t length = sizeof peer;
    if (f->kind == MESSAGES && getpeername(f->fd, (struct sockaddr *)&peer, &length) != 0)
        /* Whether that error makes an edge depends on the version of Linux. */
        return;
    ssize_t sent;
    if ((f->kind == STREAM || f->kind == MESSAGES) && below(2)) {
        sent = send(f->fd, buffer, (size_t)n, MSG_NOSIGNAL);
        told_of("send", f, n, sent);
    } else {
        sent = write(f->fd, buffer, (size_t)n);
        told_of("write", f, n, sent);
    }
    if (sent >= 0 && f->out != NULL) {
        f->out->bytes += (int)sent;
        f->out->messages++;
    }
}

static void take_some(struct file *f)
{
    size_t n = below(3) ? below(60) : below(4000);
    int flags = below(4) == 0 ? MSG_PEEK : 0;
    ssize_t got;
    if (below(8) == 0)
        flags |= MSG_TRUNC;
    if ((f->kind == STREAM || f->kind == MESSAGES) && below(2)) {
        /* MSG_TRUNC drops a stream's bytes without storing them only for TCP. */
        got = recv(f->fd, buffer, n, flags);
        told_of(flags & MSG_PEEK ? "peek" : flags ? "recv MSG_TRUNC" : "recv", f, (long)n, got);
    } else {
        flags = 0;
        got = read(f->fd, buffer, n);
        told_of("read", f, (long)n, got);
    }
    if (got > 0) {
        ssize_t there = got < (ssize_t)n ? got : (ssize_t)n;
        if (f->kind != SIGNALS)
            say("  %08x", hash(buffer, there));
        else
            say("  signal %u", ((struct signalfd_siginfo *)buffer)->ssi_signo);
        if (f->in != NULL && !(flags & MSG_PEEK)) {
            f->in->bytes -= (int)got;
            f->in->messages--;
        }
    }
}

static void ask(struct file *f)
{
    int value = 0;
    socklen_t length = sizeof value;
    switch (below(8)) {
    case 0:
        told_of("F_GETFL", f, 0, fcntl(f->fd, F_GETFL) & ~0100000);
        break;
    case 1:
        told_of("F_GETFD", f, 0, fcntl(f->fd, F_GETFD));
        break;
    case 2:
        told_of("F_SETFD", f, 0, fcntl(f->fd, F_SETFD, (int)below(2)));
        break;
    case 3:
        told_of("FIONREAD", f, 0, ioctl(f->fd, FIONREAD, &value));
        say("  %d", value);
        break;
    case 4:
        told_of("SO_TYPE", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_TYPE, &value, &length));
        say("  %d", value);
        break;
    case 5:
        told_of("SO_ERROR", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &value, &length));
        say("  %d", value);
        break;
    case 6:
        told_of("SO_ACCEPTCONN", f, 0, getsockopt(f->fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length));
        say("  %d", value);
        break;
    case 7:
        told_of("lseek", f, 0, lseek(f->fd, 0, SEEK_CUR));
        break;
    }
}

static void shut(struct file *f, int how)
{
    int type = 0;
    socklen_t length = sizeof type;
    getsockopt(f->fd, SOL_SOCKET, SO_TYPE, &type, &length);
    if (type == SOCK_DGRAM && how > 0 && how < 3)
        /* Without a peer and shut to write, the error depends on the version of Linux. */
        how = 0;
    told_of("shutdown", f, how, shutdown(f->fd, how));
}

static void act(void)
{
    struct file *f = some(), *other = some();
    if (f == NULL || below(5) == 0) {
        make();
        return;
    }
    switch (below(13)) {
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
        duplicate(f);
        break;
    case 7:
        ask(f);
        break;
    case 8:
        close_one(f);
        break;
    case 9:
        if (f->kind == LISTENER)
            connect_to(f);
        else
            shut(f, (int)below(4));
        break;
    case 10:
        if (below(2))
            poll_all();
        else
            told("raise", raise(below(2) ? SIGUSR1 : SIGUSR2));
        break;
    default:
        /* Each buffer that the other end of a stream has read to its end is an edge for Linux; the runtime has no such buffers (docs/limitations.md). */
        use_epoll(other, other != NULL && other->kind == STREAM ? ~(uint32_t)EPOLLOUT : ~0u);
        break;
    }
}

static void end(void)
{
    close_all();
    /* Signals that were not taken. */
    struct timespec none = {0, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    while (sigtimedwait(&set, NULL, &none) > 0)
        ;
}

int main(int argc, char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    kind_names = names;
    epoll_kind = EPOLL;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
