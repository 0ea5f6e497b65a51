/* Shared by the guests of random sequences of calls: random draws, the transcript, a table of open files with their operations, and `main`.
 *
 * Arguments: the first sequence's number, the count, and optionally the calls of each to make ("0,3,17"; all others are left out). A call's draws
 * depend on the numbers of its sequence and its place only, so that calls can be left out without changing the others: the harness
 * looks that way for the shortest sequence that shows a difference.
 */
#ifndef SEQUENCE_H
#define SEQUENCE_H

#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

/* A guest of sequences. */
struct sequences {
    /* The number of calls of each. */
    int calls;
    /* Before the first call of each; may be nothing. */
    void (*begin)(void);
    /* One call. */
    void (*act)(void);
    /* After the last: everything is as before the sequence. */
    void (*end)(void);
    /* Whether the sequence met an accident of the system and is made again; may be nothing. */
    int (*is_void)(void);
};

static uint64_t sequence_state;
static int sequence_call;

static inline __attribute__((unused)) uint32_t below(uint32_t n)
{
    sequence_state ^= sequence_state << 13;
    sequence_state ^= sequence_state >> 7;
    sequence_state ^= sequence_state << 17;
    return (uint32_t)((sequence_state >> 33) % n);
}

/* One of the items of an array. */
#define ONE_OF(array) ((array)[below(sizeof(array) / sizeof((array)[0]))])

static inline __attribute__((unused)) uint32_t hash(const void *data, ssize_t n)
{
    const unsigned char *bytes = data;
    uint32_t h = 2166136261u;
    for (ssize_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 16777619u;
    return h;
}

/* A call and its result: the error's name when it is negative. */
static inline __attribute__((unused)) void told(const char *call, long result)
{
    if (result < 0)
        say("%d %s: %s", sequence_call, call, strerrorname_np(errno));
    else
        say("%d %s: %ld", sequence_call, call, result);
}

/* The same for a call in several steps; `result` and `errno` are those of the call. */
static inline __attribute__((format(printf, 2, 3), unused)) long tell(long result, const char *format, ...)
{
    int error = errno;
    char call[160];
    va_list args;
    va_start(args, format);
    vsnprintf(call, sizeof call, format, args);
    va_end(args);
    errno = error;
    told(call, result);
    errno = error;
    return result;
}

/* The same for a function that returns its error. */
static inline __attribute__((format(printf, 2, 3), unused)) int tell_error(int error, const char *format, ...)
{
    char call[160];
    va_list args;
    va_start(args, format);
    vsnprintf(call, sizeof call, format, args);
    va_end(args);
    errno = error;
    told(call, error == 0 ? 0 : -1);
    return error;
}

#ifndef FILES
#define FILES 24
#endif

/* The known state of one direction of a stream: sent bytes that were not taken. */
struct direction {
    int bytes, messages;
};

/* An open file. Kind 0 is none; the others are the guest's, whose names are `kind_names`; `epoll_kind` are epoll sets. */
static struct file {
    int kind, fd;
    struct direction *out, *in;
    int note;
} files[FILES];
static struct direction directions[FILES * 8];
static unsigned directions_used;
static const char *const *kind_names;
static int epoll_kind;

static inline __attribute__((unused)) struct file *vacant(void)
{
    for (int i = 0; i < FILES; i++)
        if (files[i].kind == 0)
            return &files[i];
    return NULL;
}

/* One of those that are open, or nothing. */
static inline __attribute__((unused)) struct file *some(void)
{
    for (int i = 0; i < 8; i++) {
        struct file *f = &files[below(FILES)];
        if (f->kind != 0)
            return f;
    }
    return NULL;
}

/* One of a kind, or nothing. */
static inline __attribute__((unused)) struct file *some_of(int kind)
{
    int first = (int)below(FILES);
    for (int i = 0; i < FILES; i++) {
        struct file *f = &files[(first + i) % FILES];
        if (f->kind == kind)
            return f;
    }
    return NULL;
}

static inline __attribute__((unused)) int room_for(int n)
{
    int count = 0;
    for (int i = 0; i < FILES; i++)
        count += files[i].kind == 0;
    return count >= n;
}

static inline __attribute__((unused)) struct direction *fresh(void)
{
    struct direction *d = &directions[directions_used++ % (FILES * 8)];
    d->bytes = d->messages = 0;
    return d;
}

static inline __attribute__((unused)) struct file *add(int kind, int fd, struct direction *out, struct direction *in)
{
    struct file *f = vacant();
    CHECK(f != NULL);
    *f = (struct file){.kind = kind, .fd = fd, .out = out, .in = in};
    return f;
}

/* A call on one file, with its argument `given`. */
static inline __attribute__((unused)) void told_of(const char *call, const struct file *f, long given, long result)
{
    tell(result, "%s %s %d, %ld", call, kind_names[f->kind], f->fd, given);
}

static inline __attribute__((unused)) void make_epoll(void)
{
    int fd = epoll_create1(below(2) ? EPOLL_CLOEXEC : 0);
    told("epoll_create1", fd);
    if (fd >= 0)
        add(epoll_kind, fd, NULL, NULL);
}

/* `allowed` are the events to choose from. */
static inline __attribute__((unused)) void watch(struct file *ep, struct file *f, uint32_t allowed)
{
    static const uint32_t extra[] = {0, 0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT, EPOLLRDHUP, EPOLLPRI};
    static const int ops[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    static const uint32_t base[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, 0};
    struct epoll_event event = {.events = ONE_OF(base), .data.u64 = (uint64_t)f->fd};
    event.events |= ONE_OF(extra);
    if (event.events & EPOLLET)
        event.events &= allowed;
    int op = ONE_OF(ops);
    tell(epoll_ctl(ep->fd, op, f->fd, &event), "epoll_ctl %d %s %s %d %x", ep->fd,
         op == EPOLL_CTL_ADD   ? "add"
         : op == EPOLL_CTL_MOD ? "modify"
                               : "remove",
         kind_names[f->kind], f->fd, event.events);
}

static inline __attribute__((unused)) void wait_events(struct file *ep)
{
    struct epoll_event got[FILES];
    int most = 1 + (int)below(6);
    int n = (int)tell(epoll_wait(ep->fd, got, most, 0), "epoll_wait %d, %d", ep->fd, most);
    for (int i = 0; i < n; i++)
        say("  %llu %x", (unsigned long long)got[i].data.u64, got[i].events);
}

/* One of the epoll sets waits, or watches `other`; `allowed` as above. */
static inline __attribute__((unused)) void use_epoll(struct file *other, uint32_t allowed)
{
    struct file *ep = some_of(epoll_kind);
    if (ep == NULL)
        return;
    if (other != NULL && below(2))
        watch(ep, other, allowed);
    else
        wait_events(ep);
}

static inline __attribute__((unused)) void poll_all(void)
{
    struct pollfd fds[FILES];
    int n = 0;
    for (int i = 0; i < FILES; i++)
        if (files[i].kind != 0) {
            static const short asked[] = {POLLIN, POLLOUT, POLLIN | POLLOUT, POLLIN | POLLRDHUP, POLLPRI, 0};
            fds[n].fd = files[i].fd;
            fds[n].revents = 0;
            fds[n++].events = ONE_OF(asked);
        }
    told("poll", poll(fds, (nfds_t)n, 0));
    for (int i = 0; i < n; i++)
        if (fds[i].revents != 0)
            say("  %d: %x of %x", fds[i].fd, (unsigned)fds[i].revents, (unsigned)fds[i].events);
}

static inline __attribute__((unused)) void duplicate(struct file *f)
{
    if (!room_for(1))
        return;
    struct file *other;
    int fd;
    switch (below(4)) {
    case 0:
        fd = dup(f->fd);
        told_of("dup", f, 0, fd);
        break;
    case 1:
        fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 3 + (int)below(30));
        told("F_DUPFD_CLOEXEC", fd);
        break;
    case 2:
        fd = dup3(f->fd, f->fd, 0);
        told("dup3 to itself", fd);
        return;
    default:
        /* In the place of another descriptor, which this closes. */
        other = some();
        if (other == NULL || other == f)
            return;
        fd = dup2(f->fd, other->fd);
        told_of("dup2", f, other->fd, fd);
        if (fd >= 0)
            other->kind = 0;
        break;
    }
    if (fd >= 0)
        add(f->kind, fd, f->out, f->in)->note = f->note;
}

static inline __attribute__((unused)) void close_one(struct file *f)
{
    told_of("close", f, 0, close(f->fd));
    f->kind = 0;
}

static inline __attribute__((unused)) void close_all(void)
{
    for (int i = 0; i < FILES; i++)
        if (files[i].kind != 0)
            close_one(&files[i]);
    directions_used = 0;
}

/* Whether this call of a sequence is made: the list has it, or there is no list. */
static inline int is_kept(const char *kept, int call)
{
    for (const char *at = kept; at != NULL && *at != 0;) {
        char *rest;
        if (strtol(at, &rest, 10) == call)
            return 1;
        at = *rest == ',' ? rest + 1 : "";
    }
    return kept == NULL;
}

static inline uint64_t sequence_mix(uint64_t seed, uint64_t call)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + call * 0xd1342543de82ef95u + 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return z == 0 ? 1 : z;
}

static inline int run_sequences(int argc, char **argv, const struct sequences *what)
{
    CHECK(argc >= 3);
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    const char *kept = argc > 3 ? argv[3] : NULL;
    /* If a call does not return, the harness sees which sequence it was in; of a single one, which calls came before it. */
    if (count == 1)
        CHECK(setvbuf(stdout, NULL, _IOLBF, 0) == 0);
    for (uint64_t seed = first; seed < first + count; seed++) {
        FILE *out = stdout;
        char *text = NULL;
        size_t length = 0;
        int again = 0;
        say("sequence %llu", (unsigned long long)seed);
        CHECK(fflush(stdout) == 0);
        do {
            if (what->is_void != NULL)
                CHECK((stdout = open_memstream(&text, &length)) != NULL);
            sequence_call = -1;
            sequence_state = sequence_mix(seed, UINT32_MAX);
            if (what->begin != NULL)
                what->begin();
            for (sequence_call = 0; sequence_call < what->calls; sequence_call++)
                if (is_kept(kept, sequence_call)) {
                    sequence_state = sequence_mix(seed, (uint64_t)sequence_call);
                    what->act();
                }
            what->end();
            if (what->is_void != NULL) {
                CHECK(fclose(stdout) == 0);
                stdout = out;
                again = what->is_void();
                CHECK(again || fwrite(text, 1, length, stdout) == length);
                free(text);
            }
        } while (again);
    }
    CHECK(fflush(stdout) == 0);
    return 0;
}

#endif
