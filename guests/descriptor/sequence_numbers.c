/* Random sequences of calls on the numbers of descriptors, nothing blocks: dup, dup2, dup3, F_DUPFD, close_range, limits, wrong numbers; what duplicates share
 * (offsets, O_APPEND, O_NONBLOCK) and what they do not (close-on-exec); select and poll on them; and children that inherit them, make such calls, too, and
 * end in every way. Regular files, pipes and UNIX streams. Linux and Skein answer alike: results, errors, bytes, offsets, flags and readiness.
 *
 * expect: same
 * sequences: 1000
 */
#include "sequence.h"
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The most unread bytes of a pipe or stream. */
#define MOST_BYTES 12000
/* Numbers in use are below. */
#define NUMBERS 60
#define PATHS 3

enum kind { NONE, REGULAR, READER, WRITER, STREAM };
static const char *const names[] = {"none", "regular", "reader", "writer", "stream"};

static char buffer[4096];
/* Only the first process has children. */
static int is_child;
static struct rlimit limit;
static int is_limited;

static struct file *by_number(int fd)
{
    for (int i = 0; i < FILES; i++)
        if (files[i].kind != NONE && files[i].fd == fd)
            return &files[i];
    return NULL;
}

/* A number that is open, or perhaps not. */
static int draw_number(void)
{
    static const int wrong[] = {-1, -2, 63, 4000, INT32_MAX};
    struct file *f = some();
    if (below(16) == 0)
        return ONE_OF(wrong);
    return f != NULL && below(4) ? f->fd : 3 + (int)below(NUMBERS - 3);
}

/* The number `fd` is another file now: that of `f`. */
static void replaced(int fd, const struct file *f)
{
    struct file *old = by_number(fd), copy = *f;
    if (old != NULL)
        old->kind = NONE;
    if (!room_for(1)) {
        CHECK(close(fd) == 0);
        return;
    }
    add(copy.kind, fd, copy.out, copy.in)->note = copy.note;
}

static void make(void)
{
    int fds[2], fd;
    char path[8];
    if (!room_for(3))
        return;
    switch (below(4)) {
    case 0:
    case 1: {
        static const int flags[] = {O_RDWR, O_RDWR | O_APPEND, O_RDWR | O_TRUNC, O_RDONLY, O_WRONLY};
        int flag = ONE_OF(flags) | (below(2) ? O_CLOEXEC : 0);
        snprintf(path, sizeof path, "n%u", below(PATHS));
        fd = open(path, flag | O_CREAT, 0600);
        tell(fd, "open %s %o", path, (unsigned)flag);
        if (fd >= 0)
            add(REGULAR, fd, NULL, NULL);
        break;
    }
    case 2: {
        int rc = pipe2(fds, (below(4) ? O_NONBLOCK : 0) | (below(2) ? O_CLOEXEC : 0));
        told("pipe2", rc);
        if (rc == 0) {
            struct direction *d = fresh();
            say("  %d %d", fds[0], fds[1]);
            add(READER, fds[0], NULL, d);
            add(WRITER, fds[1], d, NULL);
        }
        break;
    }
    default: {
        int rc = socketpair(AF_UNIX, SOCK_STREAM | (below(4) ? SOCK_NONBLOCK : 0) | (below(2) ? SOCK_CLOEXEC : 0), 0, fds);
        told("socketpair", rc);
        if (rc == 0) {
            struct direction *a = fresh(), *b = fresh();
            say("  %d %d", fds[0], fds[1]);
            add(STREAM, fds[0], a, b);
            add(STREAM, fds[1], b, a);
        }
        break;
    }
    }
}

static void copy(void)
{
    static const int commands[] = {F_DUPFD, F_DUPFD_CLOEXEC};
    static const int flag_sets[] = {0, O_CLOEXEC, O_NONBLOCK};
    int from = draw_number(), to = draw_number(), fd, command, flags;
    struct file *f = by_number(from);
    switch (below(5)) {
    case 0:
        fd = dup(from);
        tell(fd, "dup %d", from);
        break;
    case 1:
        if (to >= 0 && to < 3)
            return;
        fd = dup2(from, to);
        tell(fd, "dup2 %d %d", from, to);
        if (from == to)
            return;
        break;
    case 2:
        flags = ONE_OF(flag_sets);
        fd = dup3(from, to, flags);
        tell(fd, "dup3 %d %d %o", from, to, (unsigned)flags);
        break;
    default:
        command = ONE_OF(commands);
        fd = fcntl(from, command, to);
        tell(fd, "%s %d %d", command == F_DUPFD ? "F_DUPFD" : "F_DUPFD_CLOEXEC", from, to);
        break;
    }
    if (fd >= 0) {
        CHECK(f != NULL);
        replaced(fd, f);
    }
}

static void close_some(void)
{
    if (below(3)) {
        int fd = draw_number(), rc = close(fd);
        tell(rc, "close %d", fd);
        if (rc == 0)
            by_number(fd)->kind = NONE;
        return;
    }
    static const unsigned flag_sets[] = {0, 0, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, 8};
    unsigned first = 3 + below(NUMBERS), last = below(4) ? first + below(6) : below(2) ? first - 1 : ~0u;
    unsigned flags = ONE_OF(flag_sets);
    int rc = close_range(first, last, (int)flags);
    tell(rc, "close_range %u %u %x", first, last, flags);
    if (rc == 0 && !(flags & CLOSE_RANGE_CLOEXEC))
        for (int i = 0; i < FILES; i++)
            if (files[i].kind != NONE && (unsigned)files[i].fd >= first && (unsigned)files[i].fd <= last)
                files[i].kind = NONE;
}

static void flags_of(void)
{
    int fd = draw_number(), value = (int)below(2);
    struct file *f = by_number(fd);
    switch (below(6)) {
    case 0:
        tell(fcntl(fd, F_GETFD), "F_GETFD %d", fd);
        break;
    case 1:
        tell(fcntl(fd, F_SETFD, value), "F_SETFD %d %d", fd, value);
        break;
    case 2:
    case 3: {
        int rc = fcntl(fd, F_GETFL);
        /* O_LARGEFILE is shown by the kernel alone. */
        tell(rc < 0 ? rc : rc & ~0100000, "F_GETFL %d", fd);
        break;
    }
    case 4:
        value = (below(2) ? O_NONBLOCK : 0) | (f != NULL && f->kind == REGULAR && below(2) ? O_APPEND : 0);
        tell(fcntl(fd, F_SETFL, value), "F_SETFL %d %o", fd, (unsigned)value);
        break;
    default:
        tell(ioctl(fd, below(2) ? FIOCLEX : FIONCLEX), "FIOCLEX or FIONCLEX %d", fd);
        if (f != NULL && f->kind != REGULAR)
            tell(ioctl(fd, FIONBIO, &value), "FIONBIO %d %d", fd, value);
        break;
    }
}

static void regular(struct file *f)
{
    static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, 9};
    size_t n = below(60);
    long at = (long)below(200) - 20;
    int whence = ONE_OF(whences);
    struct stat now;
    ssize_t got;
    switch (below(8)) {
    case 0:
    case 1:
        for (size_t i = 0; i < n; i++)
            buffer[i] = (char)below(256);
        told_of("write", f, (long)n, write(f->fd, buffer, n));
        break;
    case 2:
    case 3:
        got = read(f->fd, buffer, n);
        told_of("read", f, (long)n, got);
        if (got > 0)
            say("  %08x", hash(buffer, got));
        break;
    case 4:
        tell(lseek(f->fd, at, whence), "lseek %d %ld %d", f->fd, at, whence);
        break;
    case 5:
        tell(pread(f->fd, buffer, n, at), "pread %d %zu at %ld", f->fd, n, at);
        break;
    case 6:
        tell(ftruncate(f->fd, at), "ftruncate %d %ld", f->fd, at);
        break;
    default:
        told_of("fstat", f, 0, fstat(f->fd, &now));
        say("  %ld bytes", (long)now.st_size);
        break;
    }
}

static void transfer(struct file *f)
{
    struct pollfd ready = {.fd = f->fd, .events = POLLIN};
    size_t n = 1 + below(below(3) ? 40 : 1500);
    if (below(2) && f->out != NULL) {
        if (f->out->bytes + (int)n > MOST_BYTES)
            return;
        for (size_t i = 0; i < n; i++)
            buffer[i] = (char)below(256);
        ssize_t sent = write(f->fd, buffer, n);
        told_of("write", f, (long)n, sent);
        if (sent > 0)
            f->out->bytes += (int)sent;
        return;
    }
    if (f->in == NULL) {
        told_of("read", f, (long)n, read(f->fd, buffer, n));
        return;
    }
    /* What would block is not done. */
    if (!(fcntl(f->fd, F_GETFL) & O_NONBLOCK) && poll(&ready, 1, 0) == 0)
        return;
    ssize_t got = read(f->fd, buffer, n);
    told_of("read", f, (long)n, got);
    if (got > 0) {
        say("  %08x", hash(buffer, got));
        f->in->bytes -= (int)got;
    }
}

static void use(struct file *f)
{
    if (f->kind == REGULAR)
        regular(f);
    else if (f->kind == WRITER && below(8) == 0)
        told_of("read", f, 1, read(f->fd, buffer, 1));
    else
        transfer(f);
}

static void selects(void)
{
    fd_set sets[3];
    struct timeval none = {0, 0};
    struct timespec no_time = {0, 0};
    int most = (int)below(NUMBERS + 4);
    for (int i = 0; i < 3; i++)
        FD_ZERO(&sets[i]);
    for (int i = 0; i < FILES; i++)
        if (files[i].kind != NONE && below(2))
            FD_SET(files[i].fd, &sets[below(3)]);
    if (below(8) == 0)
        FD_SET(3 + (int)below(NUMBERS), &sets[below(3)]);
    fd_set *write = below(4) ? &sets[1] : NULL;
    int rc = below(2) ? select(most, &sets[0], write, &sets[2], &none)
                      : pselect(most, &sets[0], write, &sets[2], &no_time, NULL);
    tell(rc, "select below %d", most);
    for (int i = 0; rc > 0 && i < 3; i++)
        for (int fd = 0; fd < NUMBERS + 4; fd++)
            if ((i != 1 || write != NULL) && fd < most && FD_ISSET(fd, &sets[i]))
                say("  %d: %d", fd, i);
}

static void limits(void)
{
    struct rlimit some = limit;
    if (below(2))
        some.rlim_cur = 10 + below(NUMBERS);
    tell(setrlimit(RLIMIT_NOFILE, &some), "setrlimit %s", some.rlim_cur == limit.rlim_cur ? "as before" : "lower");
    is_limited = some.rlim_cur != limit.rlim_cur;
}

static void wait_for(pid_t child)
{
    int status = 0;
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (below(3) == 0) {
        long rc = waitid(P_PID, (id_t)child, &info, WEXITED | (below(2) ? WNOWAIT : 0));
        tell(rc, "waitid");
        say("  code %d, status %d", info.si_code, info.si_status);
    }
    pid_t ended = below(2) ? waitpid(child, &status, below(2) ? WUNTRACED : 0) : wait4(child, &status, 0, NULL);
    tell(ended == child ? 0 : ended, "wait for the child");
    say("  status %x", (unsigned)status);
    if (ended != child && ended > 0)
        say("  not it");
    if (ended < 0)
        CHECK(waitpid(child, NULL, 0) < 0 && errno == ECHILD);
}

static void one_call(void);

static void fork_one(void)
{
    static const int ends[] = {SIGKILL, SIGTERM, SIGUSR1, SIGHUP};
    int calls = 1 + (int)below(8), code = (int)below(300), signo = below(3) ? 0 : ONE_OF(ends);
    CHECK(fflush(stdout) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        is_child = 1;
        for (int i = 0; i < calls; i++)
            one_call();
        say("  the child ends");
        CHECK(fflush(stdout) == 0);
        if (signo != 0)
            CHECK(kill(getpid(), signo) == 0);
        _exit(code);
    }
    if (below(3) == 0) {
        pid_t other = fork();
        CHECK(other >= 0);
        if (other == 0)
            _exit(code + 1);
        if (below(2)) {
            wait_for(other);
            wait_for(child);
        } else {
            wait_for(child);
            wait_for(other);
        }
    } else
        wait_for(child);
    /* What the child has moved through pipes is not known. */
    for (int i = 0; i < FILES; i++)
        if (files[i].kind != NONE && files[i].out != NULL)
            files[i].out->bytes += 2000;
}

static void one_call(void)
{
    struct file *f = some();
    if (f == NULL || below(6) == 0) {
        make();
        return;
    }
    switch (below(14)) {
    case 0:
    case 1:
    case 2:
    case 3:
        copy();
        break;
    case 4:
        close_some();
        break;
    case 5:
    case 6:
        flags_of();
        break;
    case 7:
        if (below(3))
            selects();
        else if (!is_limited)
            /* It may have more entries than the limit allows, which Linux refuses (docs/limitations.md). */
            poll_all();
        break;
    case 8:
        if (below(3) == 0)
            limits();
        break;
    default:
        use(f);
        break;
    }
}

static void act(void)
{
    if (below(60) == 0) {
        say("%d fork", sequence_call);
        fork_one();
    } else if (below(100) == 0)
        told("wait for any child", waitpid(-1, NULL, 0));
    else
        one_call();
}

static void end(void)
{
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    is_limited = 0;
    close_all();
    for (int i = 0; i < PATHS; i++) {
        char path[8];
        snprintf(path, sizeof path, "n%d", i);
        unlink(path);
    }
    CHECK(close_range(3, ~0u, 0) == 0);
}

int main(int argc, char **argv)
{
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    kind_names = names;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
