/* stat, lstat, fstat, fstatat, statx of files that the server writes: relations natively, values the same in two runs.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <utime.h>

static int64_t ns_of(struct timespec ts) { return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec; }

static void show(const char *name)
{
    struct stat st;
    CHECK(lstat(name, &st) == 0);
    note("%s: dev %lx ino %lu mode %o links %lu size %ld blocks %ld/%ld m %ld.%09ld a %ld.%09ld c %ld.%09ld", name,
         (long)st.st_dev, (long)st.st_ino, st.st_mode, (long)st.st_nlink, (long)st.st_size, (long)st.st_blocks,
         (long)st.st_blksize, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_atim.tv_sec,
         st.st_atim.tv_nsec, (long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

static int64_t modified(const char *name)
{
    struct stat st;
    CHECK(stat(name, &st) == 0);
    return ns_of(st.st_mtim);
}

int main(void)
{
    struct stat st, by_fd, by_at;
    struct statx x;
    int fd = open("a", O_RDWR | O_CREAT, 0640);
    CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
    CHECK(stat("a", &st) == 0 && fstat(fd, &by_fd) == 0 && fstatat(AT_FDCWD, "a", &by_at, 0) == 0);
    CHECK(st.st_ino == by_fd.st_ino && st.st_dev == by_fd.st_dev && by_at.st_ino == st.st_ino);
    CHECK(ns_of(st.st_mtim) == ns_of(by_fd.st_mtim));
    CHECK(statx(AT_FDCWD, "a", 0, STATX_BASIC_STATS, &x) == 0 && x.stx_ino == st.st_ino && x.stx_size == 5);
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) == 0 && x.stx_ino == st.st_ino);
    CHECK(x.stx_mtime.tv_sec == st.st_mtim.tv_sec && x.stx_mtime.tv_nsec == st.st_mtim.tv_nsec);
    say("size %ld mode %o links %ld", (long)st.st_size, st.st_mode, (long)st.st_nlink);
    show("a");
    CHECK(llabs(ns_of(st.st_mtim) - now_ns(CLOCK_REALTIME)) < 60 * NS_PER_S);

    int64_t first = modified("a");
    sleep_ms(30);
    CHECK(write(fd, " world", 6) == 6);
    CHECK(modified("a") > first);
    sleep_ms(30);
    int64_t second = modified("a");
    char byte;
    CHECK(pread(fd, &byte, 1, 0) == 1 && modified("a") == second);
    CHECK(pwrite(fd, "H", 1, 0) == 1 && modified("a") > second);
    show("a");
    CHECK(close(fd) == 0);

    /* stdio writes inside libc. */
    second = modified("a");
    sleep_ms(30);
    FILE *file = fopen("a", "a");
    CHECK(file && fputs("more", file) >= 0 && fclose(file) == 0 && modified("a") > second);
    second = modified("a");
    sleep_ms(30);
    CHECK(truncate("a", 3) == 0 && modified("a") > second);
    second = modified("a");
    sleep_ms(30);
    CHECK((fd = open("a", O_WRONLY | O_TRUNC)) >= 0 && close(fd) == 0 && modified("a") > second);
    show("a");

    /* Times that are set. */
    struct timespec set[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_sec = 2000, .tv_nsec = 7}};
    CHECK(utimensat(AT_FDCWD, "a", set, 0) == 0 && stat("a", &st) == 0);
    say("set: a %ld.%ld m %ld.%ld", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec, (long)st.st_mtim.tv_sec,
        st.st_mtim.tv_nsec);
    set[0].tv_nsec = UTIME_OMIT;
    set[1].tv_nsec = UTIME_NOW;
    CHECK(utimensat(AT_FDCWD, "a", set, 0) == 0 && stat("a", &st) == 0);
    say("omitted: a %ld.%ld", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec);
    CHECK(llabs(ns_of(st.st_mtim) - now_ns(CLOCK_REALTIME)) < 60 * NS_PER_S);
    struct utimbuf older = {.actime = 11, .modtime = 12};
    CHECK(utime("a", &older) == 0 && stat("a", &st) == 0);
    say("utime: %ld %ld", (long)st.st_atim.tv_sec, (long)st.st_mtim.tv_sec);
    struct timeval pair[2] = {{21, 500000}, {22, 600000}};
    CHECK(utimes("a", pair) == 0 && stat("a", &st) == 0);
    say("utimes: %ld.%09ld %ld.%09ld", (long)st.st_atim.tv_sec, st.st_atim.tv_nsec, (long)st.st_mtim.tv_sec,
        st.st_mtim.tv_nsec);
    fd = open("a", O_RDWR);
    CHECK(futimens(fd, NULL) == 0 && fstat(fd, &st) == 0 && st.st_mtim.tv_sec > 1000000000);
    CHECK(close(fd) == 0);

    /* Directories change with their entries. */
    CHECK(mkdir("d", 0755) == 0);
    show("d");
    second = modified("d");
    sleep_ms(30);
    CHECK((fd = creat("d/x", 0600)) >= 0 && close(fd) == 0 && modified("d") > second);
    second = modified("d");
    sleep_ms(30);
    CHECK((fd = open("d/x", O_RDWR | O_CREAT, 0600)) >= 0 && close(fd) == 0 && modified("d") == second);
    CHECK(rename("d/x", "d/y") == 0 && modified("d") > second);
    second = modified("d");
    sleep_ms(30);
    CHECK(symlink("y", "d/z") == 0 && modified("d") > second);
    second = modified("d");
    sleep_ms(30);
    CHECK(link("d/y", "d/w") == 0 && modified("d") > second);
    CHECK(stat("d/y", &st) == 0 && stat("d/w", &by_fd) == 0 && st.st_ino == by_fd.st_ino && st.st_nlink == 2);
    second = modified("d");
    sleep_ms(30);
    CHECK(unlink("d/w") == 0 && modified("d") > second);
    show("d");
    show("d/z");
    CHECK(lstat("d/z", &st) == 0 && S_ISLNK(st.st_mode) && stat("d/z", &by_fd) == 0 && st.st_ino != by_fd.st_ino);

    /* A file made in the place of a removed one is another file. */
    ino_t before = 0;
    for (int i = 0; i < 20; i++) {
        CHECK((fd = open("again", O_CREAT | O_EXCL | O_WRONLY, 0600)) >= 0 && fstat(fd, &st) == 0 && close(fd) == 0);
        note("again: ino %ld", (long)st.st_ino);
        CHECK(unlink("again") == 0);
        before = st.st_ino;
    }
    CHECK(before != 0);

    /* Files older than the server keep their times. */
    /* Older than the log: the server may have changed a younger file unnoticed. */
    CHECK(stat("/usr/share/common-licenses/Apache-2.0", &st) == 0 && stat("/etc", &by_fd) == 0 && st.st_dev != 0);
    say("licence modified %ld size %ld", (long)st.st_mtim.tv_sec, (long)st.st_size);
    note("etc: ino %ld, licence: ino %ld m %ld a %ld c %ld", (long)by_fd.st_ino, (long)st.st_ino,
         (long)st.st_mtim.tv_sec, (long)st.st_atim.tv_sec, (long)st.st_ctim.tv_sec);
    CHECK_ERRNO(stat("nothing", &st), ENOENT);
    CHECK_ERRNO(fstat(77, &st), EBADF);
    CHECK_ERRNO(stat("/etc/passwd/x", &st), ENOTDIR);

    /* Descriptors of other things. */
    CHECK(fstat(0, &st) == 0 && S_ISCHR(st.st_mode));
    note("0: dev %lx ino %ld m %ld", (long)st.st_dev, (long)st.st_ino, (long)st.st_mtim.tv_sec);
    for (fd = 1; fd <= 2; fd++) {
        CHECK(fstat(fd, &st) == 0);
        note("%d: dev %lx ino %ld mode %o size %ld m %ld", fd, (long)st.st_dev, (long)st.st_ino, st.st_mode,
             (long)st.st_size, (long)st.st_mtim.tv_sec);
    }

    struct statfs fs;
    struct statvfs vfs;
    CHECK(statfs(".", &fs) == 0 && fs.f_bsize > 0 && fs.f_bfree <= fs.f_blocks);
    CHECK(statvfs("/etc", &vfs) == 0 && vfs.f_namemax == 255 && vfs.f_bavail <= vfs.f_blocks);
    CHECK_ERRNO(statfs("nothing", &fs), ENOENT);
    note("fs: type %lx %lu of %lu blocks of %ld, %lu files; flags %lx", (long)fs.f_type, (long)fs.f_bfree,
         (long)fs.f_blocks, (long)fs.f_bsize, (long)fs.f_ffree, (long)fs.f_flags);
    note("vfs: %lu of %lu, flags %lx", (long)vfs.f_bfree, (long)vfs.f_blocks, (long)vfs.f_flag);
    CHECK(unlink("a") == 0);
    return 0;
}
