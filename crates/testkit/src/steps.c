/* Preloaded into a process: kills it at a step of its work on files. A *step* is a call with a path that has some words in it, before or after
 * the call: "before rename /images/pack-". Calls: open (of a file to be written), write, put and read (at a place), sync, rename, unlink. "any" stands for each call, or for before and after.
 *
 * $SKEIN_TEST_STEPS is a directory. A process whose command line has the word $SKEIN_TEST_STEPS_IN (all, without it) maps the file PID there: a number of 64 bits, the
 * steps to let pass before the last one, counted down; and the step as text. The first process after the file "next" was written there begins with that, and removes it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct step {
    int64_t left;
    char text[504];
};
static struct step *set;

static int is_meant(const char *word)
{
    char line[4096];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : syscall(SYS_read, fd, line, sizeof line - 1);
    if (fd >= 0)
        syscall(SYS_close, fd);
    if (bytes <= 0)
        return 0;
    line[bytes] = 0;
    for (const char *at = line; at < line + bytes; at += strlen(at) + 1)
        if (strcmp(at, word) == 0)
            return 1;
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *dir = getenv("SKEIN_TEST_STEPS"), *word = getenv("SKEIN_TEST_STEPS_IN");
    char path[4096], next[4096];
    if (dir == NULL || (word != NULL && !is_meant(word)))
        return;
    if (snprintf(path, sizeof path, "%s/%d", dir, (int)getpid()) >= (int)sizeof path)
        return;
    if (snprintf(next, sizeof next, "%s/next", dir) >= (int)sizeof next)
        return;
    syscall(SYS_rename, next, path);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || syscall(SYS_ftruncate, fd, sizeof *set) != 0)
        return;
    void *at = mmap(NULL, sizeof *set, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        set = at;
    syscall(SYS_close, fd);
}

static void step(const char *when, const char *call, const char *path)
{
    char text[sizeof set->text];
    if (set == NULL || path == NULL || __atomic_load_n(&set->left, __ATOMIC_ACQUIRE) <= 0)
        return;
    memcpy(text, set->text, sizeof text);
    text[sizeof text - 1] = 0;
    char *first = strchr(text, ' '), *second = first == NULL ? NULL : strchr(first + 1, ' ');
    if (second == NULL)
        return;
    *first = *second = 0;
    if ((strcmp(text, "any") != 0 && strcmp(text, when) != 0) || (strcmp(first + 1, "any") != 0 && strcmp(first + 1, call) != 0))
        return;
    if (strstr(path, second + 1) != NULL && __atomic_sub_fetch(&set->left, 1, __ATOMIC_ACQ_REL) == 0)
        kill(getpid(), SIGKILL);
}

static const char *name_of(int fd, char *path, size_t bytes)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlink, link, path, bytes - 1);
    if (n < 0)
        return NULL;
    path[n] = 0;
    return path;
}

#define ON_NAME(call, path, act) \
    const char *named = (path); \
    step("before", call, named); \
    long result = (act); \
    int error = errno; \
    step("after", call, named); \
    errno = error; \
    return result

#define ON_FD(call, fd, act) \
    char name[4096]; \
    ON_NAME(call, set == NULL ? NULL : name_of(fd, name, sizeof name), act)

static long opened(const char *path, int flags, unsigned mode)
{
    if ((flags & O_ACCMODE) == O_RDONLY)
        return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    ON_NAME("open", path, syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

#define MODE(flags) \
    unsigned mode = 0; \
    if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, unsigned); \
        va_end(more); \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return (int)opened(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return (int)opened(path, flags, mode);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    ON_FD("write", fd, syscall(SYS_write, fd, from, bytes));
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    ON_FD("put", fd, syscall(SYS_pwrite64, fd, from, bytes, at));
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t at)
{
    ON_FD("read", fd, syscall(SYS_pread64, fd, to, bytes, at));
}

int fsync(int fd)
{
    ON_FD("sync", fd, syscall(SYS_fsync, fd));
}

int fdatasync(int fd)
{
    ON_FD("sync", fd, syscall(SYS_fdatasync, fd));
}

int rename(const char *from, const char *to)
{
    ON_NAME("rename", to, syscall(SYS_rename, from, to));
}

int unlink(const char *path)
{
    ON_NAME("unlink", path, syscall(SYS_unlink, path));
}
