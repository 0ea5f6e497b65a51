/* Random sequences of calls on epoll sets that watch epoll sets, one thread, nothing blocks: sets of sets over pipes, eventfds and UNIX sockets, level, edge, one-shot
 * and exclusive items, circles and chains that are too long, sets and files that are closed while they are watched, and their duplicates. Linux and
 * Skein answer alike: results, errors, readiness through all sets and the order of ready files.
 *
 * expect: same
 * sequences: 8000
 */
#define FILES 12
#include "sequence.h"
#include <sys/eventfd.h>

enum kind { NONE, READER, WRITER, EVENT, MESSAGES, EPOLL };
static const char *const names[] = {"none", "reader", "writer", "eventfd", "messages", "epoll"};

/* The most unread bytes of a pipe, and messages of a socket: capacities beyond that are not compared. */
#define MOST_BYTES 400
#define MOST_MESSAGES 6

static char buffer[64];

/* Items that were added, the newest ones: the descriptors of the set and of the file. They may be gone. */
static struct {
    int set, fd;
} items[8];
static unsigned items_used;

static void note_item(const struct file *ep, const struct file *f)
{
    items[items_used % 8].set = ep->fd;
    items[items_used++ % 8].fd = f->fd;
}

static void make_below(void)
{
    int fds[2];
    switch (below(3)) {
    case 0:
        told("pipe2", pipe2(fds, O_NONBLOCK));
        struct direction *bytes = fresh();
        add(READER, fds[0], NULL, bytes);
        add(WRITER, fds[1], bytes, NULL);
        break;
    case 1:
        fds[0] = eventfd(below(2), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0));
        told("eventfd", fds[0]);
        add(EVENT, fds[0], NULL, NULL);
        break;
    default:
        told("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds));
        struct direction *there = fresh(), *back = fresh();
        add(MESSAGES, fds[0], there, back);
        add(MESSAGES, fds[1], back, there);
        break;
    }
}

static void make(void)
{
    if (!room_for(2))
        return;
    if (below(2))
        make_epoll();
    else
        make_below();
}

static void give(struct file *f)
{
    uint64_t one = 1;
    size_t n = f->kind == EVENT ? 8 : 1 + below(30);
    if (f->out != NULL && (f->out->bytes + (int)n > MOST_BYTES || f->out->messages >= MOST_MESSAGES))
        return;
    ssize_t sent = write(f->fd, f->kind == EVENT ? (void *)&one : buffer, n);
    told_of("write", f, (long)n, sent);
    if (sent > 0 && f->out != NULL) {
        f->out->bytes += (int)sent;
        f->out->messages++;
    }
}

static void take(struct file *f)
{
    size_t n = f->kind == READER ? 1 + below(40) : sizeof buffer;
    ssize_t got = read(f->fd, buffer, n);
    told_of("read", f, (long)n, got);
    if (got > 0 && f->in != NULL) {
        f->in->bytes -= (int)got;
        f->in->messages = f->kind == READER ? 0 : f->in->messages - 1;
    }
}

static uint32_t some_events(void)
{
    static const uint32_t base[] = {EPOLLIN, EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLPRI, 0};
    static const uint32_t extra[] = {0, 0, EPOLLET, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT, EPOLLRDHUP};
    uint32_t events = ONE_OF(base);
    return events | ONE_OF(extra) | (below(12) == 0 ? EPOLLEXCLUSIVE : 0);
}

static void watch_one(struct file *ep, struct file *f)
{
    struct epoll_event event = {.events = some_events(), .data.u64 = (uint64_t)f->fd};
    int rc = epoll_ctl(ep->fd, EPOLL_CTL_ADD, f->fd, &event);
    tell(rc, "add to %d %s %d %x", ep->fd, kind_names[f->kind], f->fd, event.events);
    if (rc == 0)
        note_item(ep, f);
}

/* Changes or removes an item. */
static void change(void)
{
    if (items_used == 0)
        return;
    unsigned n = below(items_used < 8 ? items_used : 8);
    struct epoll_event event = {.events = some_events(), .data.u64 = (uint64_t)items[n].fd};
    if (below(4) == 0)
        tell(epoll_ctl(items[n].set, EPOLL_CTL_DEL, items[n].fd, NULL), "remove from %d %d", items[n].set, items[n].fd);
    else
        tell(epoll_ctl(items[n].set, EPOLL_CTL_MOD, items[n].fd, &event), "modify in %d %d %x", items[n].set,
             items[n].fd, event.events);
}

static void act(void)
{
    struct file *f = some(), *ep = some_of(EPOLL);
    if (f == NULL || ep == NULL || below(12) == 0) {
        make();
        return;
    }
    switch (below(20)) {
    case 0:
    case 1:
    case 2:
        watch_one(ep, some_of(EPOLL));
        break;
    case 3:
    case 4:
        watch_one(ep, f);
        break;
    case 5:
    case 6:
    case 7:
        change();
        break;
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
        wait_events(ep);
        break;
    case 13:
    case 14:
        give(f);
        break;
    case 15:
    case 16:
        take(f);
        break;
    case 17:
        poll_all();
        break;
    case 18:
        if (below(2))
            duplicate(f);
        else
            duplicate(ep);
        break;
    default:
        close_one(below(2) ? f : ep);
        break;
    }
}

static void begin(void)
{
    for (int i = 0; i < 4; i++)
        make_epoll();
    make_below();
    make_below();
}

/* Those that are left wait once more: nothing is hidden below a set that was not looked at. */
static void end(void)
{
    for (int i = 0; i < FILES; i++)
        if (files[i].kind == EPOLL)
            wait_events(&files[i]);
    close_all();
    items_used = 0;
}

int main(int argc, char **argv)
{
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    kind_names = names;
    epoll_kind = EPOLL;
    return run_sequences(argc, argv, &(struct sequences){.calls = 100, .begin = begin, .act = act, .end = end});
}
