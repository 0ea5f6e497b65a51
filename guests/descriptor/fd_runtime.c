/* The runtime's own descriptors do not exist for the server: by libc's functions, by syscall(), by instructions of its own, by /proc, in
 * messages. Natively these numbers are not open.
 *
 * expect: same
 */
#include "raw.h"
#include <linux/falloc.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

enum { FIRST = 900, PLACEHOLDER = 902, LAST = 904 };

/* By syscall() and by an instruction. */
#define RAW(nr, a, b, c, d, e, f)                                                                                      \
    do {                                                                                                               \
        CHECK_ERRNO(syscall(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)), EBADF);             \
        CHECK(raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)) == -EBADF);            \
    } while (0)

static void by_libc(int fd, int file, int other)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct stat st;
    struct statfs fs;
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd asked = {fd, POLLIN, 0};
    struct timespec times[2] = {{0}};
    CHECK_ERRNO(read(fd, &byte, 1), EBADF);
    CHECK_ERRNO(write(fd, &byte, 1), EBADF);
    CHECK_ERRNO(readv(fd, &part, 1), EBADF);
    CHECK_ERRNO(writev(fd, &part, 1), EBADF);
    CHECK_ERRNO(pread(fd, &byte, 1, 0), EBADF);
    CHECK_ERRNO(pwrite(fd, &byte, 1, 0), EBADF);
    CHECK_ERRNO(preadv(fd, &part, 1, 0), EBADF);
    CHECK_ERRNO(pwritev(fd, &part, 1, 0), EBADF);
    CHECK_ERRNO(lseek(fd, 0, SEEK_SET), EBADF);
    CHECK_ERRNO(ftruncate(fd, 0), EBADF);
    CHECK_ERRNO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EBADF);
    CHECK(posix_fallocate(fd, 0, 4096) == EBADF);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == EBADF);
    CHECK_ERRNO(readahead(fd, 0, 4096), EBADF);
    CHECK_ERRNO(sync_file_range(fd, 0, 0, 0), EBADF);
    CHECK_ERRNO(fsync(fd), EBADF);
    CHECK_ERRNO(fdatasync(fd), EBADF);
    CHECK_ERRNO(syncfs(fd), EBADF);
    CHECK_ERRNO(fstat(fd, &st), EBADF);
    CHECK_ERRNO(fstatat(fd, "", &st, AT_EMPTY_PATH), EBADF);
    CHECK_ERRNO(fstatfs(fd, &fs), EBADF);
    CHECK_ERRNO(fchmod(fd, 0), EBADF);
    CHECK_ERRNO(fchown(fd, -1, -1), EBADF);
    CHECK_ERRNO(fchownat(fd, "", -1, -1, AT_EMPTY_PATH), EBADF);
    CHECK_ERRNO(fchdir(fd), EBADF);
    CHECK_ERRNO(futimens(fd, times), EBADF);
    CHECK_ERRNO(flock(fd, LOCK_EX | LOCK_NB), EBADF);
    CHECK_ERRNO(lockf(fd, F_TLOCK, 0), EBADF);
    CHECK_ERRNO(fsetxattr(fd, "user.x", "", 0, 0), EBADF);
    CHECK_ERRNO(flistxattr(fd, NULL, 0), EBADF);
    CHECK_ERRNO(ioctl(fd, FIONREAD, &byte), EBADF);
    CHECK_ERRNO(isatty(fd) - 1, EBADF);
    CHECK_ERRNO(fcntl(fd, F_GETFD), EBADF);
    CHECK_ERRNO(fcntl(fd, F_SETFD, FD_CLOEXEC), EBADF);
    CHECK_ERRNO(fcntl(fd, F_DUPFD, 0), EBADF);
    CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBADF);
    CHECK_ERRNO(dup(fd), EBADF);
    CHECK_ERRNO(dup2(fd, other), EBADF);
    CHECK_ERRNO(dup3(fd, other, 0), EBADF);
    CHECK_ERRNO(close(fd), EBADF);
    CHECK_ERRNO(sendfile(file, fd, NULL, 1), EBADF);
    CHECK_ERRNO(sendfile(fd, file, NULL, 1), EBADF);
    CHECK_ERRNO(copy_file_range(fd, NULL, file, NULL, 1, 0), EBADF);
    CHECK_ERRNO(copy_file_range(file, NULL, fd, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(fd, NULL, other, NULL, 1, 0), EBADF);
    CHECK_ERRNO(vmsplice(fd, &part, 1, 0), EBADF);
    CHECK_ERRNO(openat(fd, "x", O_RDONLY), EBADF);
    CHECK_ERRNO(getsockname(fd, NULL, NULL), EBADF);
    CHECK_ERRNO(send(fd, &byte, 1, 0), EBADF);
    CHECK_ERRNO(recv(fd, &byte, 1, 0), EBADF);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EBADF);
    CHECK(poll(&asked, 1, 0) == 1 && asked.revents == POLLNVAL);
    int set = epoll_create1(0);
    CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), EBADF);
    CHECK_ERRNO(epoll_ctl(fd, EPOLL_CTL_ADD, other, &event), EBADF);
    CHECK(close(set) == 0);
    CHECK(fdopen(fd, "r") == NULL && errno == EBADF);
}

static void by_number(int fd, int file, int other)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct stat st;
    RAW(SYS_read, fd, &byte, 1, 0, 0, 0);
    RAW(SYS_write, fd, &byte, 1, 0, 0, 0);
    RAW(SYS_writev, fd, &part, 1, 0, 0, 0);
    RAW(SYS_pwrite64, fd, &byte, 1, 0, 0, 0);
    RAW(SYS_ftruncate, fd, 0, 0, 0, 0, 0);
    RAW(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096, 0, 0);
    RAW(SYS_fadvise64, fd, 0, 0, 0, 0, 0);
    RAW(SYS_fstat, fd, &st, 0, 0, 0, 0);
    RAW(SYS_fchmod, fd, 0, 0, 0, 0, 0);
    RAW(SYS_fchownat, fd, "", -1, -1, AT_EMPTY_PATH, 0);
    RAW(SYS_fsetxattr, fd, "user.x", "", 0, 0, 0);
    RAW(SYS_fchdir, fd, 0, 0, 0, 0, 0);
    RAW(SYS_flock, fd, LOCK_EX | LOCK_NB, 0, 0, 0, 0);
    RAW(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_WRITE, 0, 0, 0);
    RAW(SYS_fcntl, fd, F_DUPFD, 0, 0, 0, 0);
    RAW(SYS_ioctl, fd, FIONREAD, &byte, 0, 0, 0);
    RAW(SYS_dup, fd, 0, 0, 0, 0, 0);
    RAW(SYS_dup2, fd, other, 0, 0, 0, 0);
    RAW(SYS_dup3, fd, other, 0, 0, 0, 0);
    RAW(SYS_close, fd, 0, 0, 0, 0, 0);
    RAW(SYS_sendfile, fd, file, 0, 1, 0, 0);
    RAW(SYS_copy_file_range, file, 0, fd, 0, 1, 0);
    RAW(SYS_splice, fd, 0, other, 0, 1, 0);
    RAW(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    RAW(SYS_openat, fd, "x", O_RDONLY, 0, 0, 0);
    /* An anonymous mapping ignores its descriptor. */
    CHECK(raw6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0) > 0);
}

/* Between the runtime's descriptors and virtual ones. */
static void by_moving(int fd)
{
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    CHECK_ERRNO(sendfile(ends[1], fd, NULL, 1), EBADF);
    CHECK_ERRNO(splice(fd, NULL, ends[1], NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(ends[0], NULL, fd, NULL, 1, 0), EBADF);
    CHECK_ERRNO(tee(ends[0], fd, 1, 0), EBADF);
    RAW(SYS_sendfile, ends[1], fd, 0, 1, 0, 0);
    RAW(SYS_splice, fd, 0, ends[1], 0, 1, 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* For any reason: native Linux has no such file, Skein may also say that it must not be changed. */
#define REFUSED(expr) CHECK((long long)(expr) == -1)

static void by_path(int fd)
{
    char path[64];
    struct stat st;
    for (int way = 0; way < 3; way++) {
        if (way == 0)
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        else if (way == 1)
            snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
        else
            snprintf(path, sizeof path, "/dev/fd/%d", fd);
        CHECK_ERRNO(truncate(path, 0), ENOENT);
        CHECK_ERRNO(open(path, O_RDWR), ENOENT);
        CHECK_ERRNO(open(path, O_RDWR | O_TRUNC), ENOENT);
        CHECK_ERRNO(stat(path, &st), ENOENT);
        CHECK_ERRNO(readlink(path, path + 40, 10), ENOENT);
        CHECK_ERRNO(syscall(SYS_truncate, path, 0L), ENOENT);
        CHECK(raw6(SYS_truncate, (long)path, 0, 0, 0, 0, 0) == -ENOENT);
        CHECK(raw6(SYS_open, (long)path, O_RDWR | O_TRUNC, 0, 0, 0, 0) == -ENOENT);
    }
    /* By names that the test cannot know in advance. Placeholders are open on /dev/null, which belongs to no one. */
    if (fd == PLACEHOLDER)
        return;
    char name[16], link[] = "/mnt/fd_runtime_XXXXXX";
    snprintf(name, sizeof name, "%d", fd);
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY), before = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(folder >= 0 && before >= 0 && mkdtemp(link) && rmdir(link) == 0);
    REFUSED(openat(folder, name, O_RDWR));
    REFUSED(openat(folder, name, O_RDWR | O_TRUNC));
    CHECK(fchdir(folder) == 0);
    REFUSED(open(name, O_RDWR));
    REFUSED(truncate(name, 0));
    CHECK(fchdir(before) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(symlink(path, link) == 0);
    REFUSED(open(link, O_RDWR));
    REFUSED(truncate(link, 0));
    CHECK(unlink(link) == 0 && close(folder) == 0 && close(before) == 0);
}

static void by_message(int fd)
{
    int pair[2];
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK_ERRNO(sendmsg(pair[0], &message, 0), EBADF);
    CHECK(raw6(SYS_sendmsg, pair[0], (long)&message, 0, 0, 0, 0) == -EBADF);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

int main(void)
{
    FILE *file = tmpfile();
    int other = dup(fileno(file));
    CHECK(file && other >= 0);
    for (int fd = FIRST; fd <= LAST; fd++) {
        by_libc(fd, fileno(file), other);
        by_number(fd, fileno(file), other);
        by_moving(fd);
        by_path(fd);
        by_message(fd);
    }
    say("nothing of the runtime's is open");
    return 0;
}
