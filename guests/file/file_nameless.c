/* Files that never had a name: what F_GETFL says of how they were opened, and whether they may get a name.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>

#define SHOWN (O_TMPFILE | O_ACCMODE | O_APPEND | O_NOATIME)

static int opened(int flags)
{
    int fd = open(".", O_TMPFILE | flags, 0640);
    CHECK(fd >= 0);
    write_all(fd, "0123456789", 10);
    CHECK(lseek(fd, 4, SEEK_SET) == 4);
    return fd;
}

static char *path(int fd)
{
    static char text[64];
    snprintf(text, sizeof text, "/proc/self/fd/%d", fd);
    return text;
}

static void check(int fd, int flags, off_t at)
{
    struct stat st;
    CHECK((fcntl(fd, F_GETFL) & SHOWN) == flags);
    CHECK(lseek(fd, 0, SEEK_CUR) == at && fstat(fd, &st) == 0 && st.st_size == 10 && st.st_nlink == 0);
    CHECK((st.st_mode & 07777) == 0640);
}

static void link_it(int fd, const char *name)
{
    struct stat st;
    CHECK(linkat(AT_FDCWD, path(fd), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0);
    CHECK(stat(name, &st) == 0 && st.st_size == 10 && st.st_nlink == 1 && unlink(name) == 0);
}

int main(void)
{
    int plain = opened(O_RDWR), excluded = opened(O_RDWR | O_EXCL), writes = opened(O_WRONLY | O_NOATIME);
    int again = open(path(plain), O_RDONLY | O_APPEND), both = dup(plain), late = opened(O_WRONLY | O_EXCL | O_APPEND);
    int reads = open(path(late), O_RDONLY);
    CHECK(again >= 0 && both >= 0 && reads >= 0 && lseek(again, 2, SEEK_SET) == 2);
    FILE *stream = tmpfile();
    CHECK(stream && fputs("0123456789", stream) >= 0 && fflush(stream) == 0 && fchmod(fileno(stream), 0640) == 0);
    for (int n = 0; n < 4; n++) {
        check(plain, O_TMPFILE | O_RDWR, 4 + n);
        check(both, O_TMPFILE | O_RDWR, 4 + n);
        check(again, O_RDONLY | O_APPEND, 2);
        check(excluded, O_TMPFILE | O_RDWR, 4);
        check(writes, O_TMPFILE | O_WRONLY | O_NOATIME, 4);
        check(late, O_TMPFILE | O_WRONLY | O_APPEND, 4);
        check(reads, O_RDONLY, 0);
        check(fileno(stream), O_TMPFILE | O_RDWR, 10);
        CHECK_ERRNO(linkat(AT_FDCWD, path(excluded), AT_FDCWD, "excluded", AT_SYMLINK_FOLLOW), ENOENT);
        CHECK_ERRNO(linkat(AT_FDCWD, path(late), AT_FDCWD, "late", AT_SYMLINK_FOLLOW), ENOENT);
        CHECK_ERRNO(linkat(AT_FDCWD, path(fileno(stream)), AT_FDCWD, "/tmp/never made", AT_SYMLINK_FOLLOW), ENOENT);
        char byte;
        CHECK(read(plain, &byte, 1) == 1 && byte == '4' + n);
        sleep_ms(10);
    }
    link_it(plain, "plain");
    link_it(writes, "writes");
    say("all as they were opened");
    return 0;
}
