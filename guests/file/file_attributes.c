/* Extended attributes of what has no path: a removed file, one without a name, a memory file.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static char large[3000];

static void set(int fd)
{
    CHECK(fsetxattr(fd, "user.one", "a value", 7, 0) == 0);
    CHECK(fsetxattr(fd, "user.empty", "", 0, 0) == 0);
    CHECK(fsetxattr(fd, "user.large", large, sizeof large, 0) == 0);
}

static void has(int fd, const char *name, const char *value, ssize_t len)
{
    static char buffer[4000];
    CHECK(fgetxattr(fd, name, buffer, sizeof buffer) == len && memcmp(buffer, value, len) == 0);
}

static void check(int fd, ssize_t len)
{
    char names[200];
    CHECK(flistxattr(fd, names, sizeof names) == len);
    if (len == 0)
        return;
    has(fd, "user.one", "a value", 7);
    has(fd, "user.empty", "", 0);
    has(fd, "user.large", large, sizeof large);
    CHECK_ERRNO(fgetxattr(fd, "user.none", names, sizeof names), ENODATA);
}

int main(void)
{
    const ssize_t all = sizeof "user.one" + sizeof "user.empty" + sizeof "user.large";
    memset(large, 'l', sizeof large);
    large[7] = 0;
    int removed = open("removed", O_RDWR | O_CREAT, 0600), nameless = open(".", O_RDWR | O_TMPFILE, 0600);
    int memory = memfd_create("memory", 0), plain = memfd_create("plain", 0);
    CHECK(removed >= 0 && unlink("removed") == 0 && nameless >= 0 && memory >= 0 && plain >= 0);
    CHECK(fsetxattr(removed, "user.one", "another", 7, 0) == 0 || errno == EOPNOTSUPP);
    int works = fsetxattr(removed, "user.one", "another", 7, 0) == 0;
    /* Since Linux 6.6. */
    int memory_too = fsetxattr(memory, "user.one", "another", 7, 0) == 0;
    note("attributes: %d %d", works, memory_too);
    if (works) {
        set(removed);
        set(nameless);
    }
    if (memory_too)
        set(memory);
    CHECK(fchmod(removed, 0400) == 0);
    for (int n = 0; n < 4; n++) {
        struct stat st;
        CHECK(fstat(removed, &st) == 0 && (st.st_mode & 07777) == 0400 && st.st_nlink == 0);
        check(removed, works ? all : 0);
        check(nameless, works ? all : 0);
        check(memory, memory_too ? all : 0);
        check(plain, 0);
        sleep_ms(10);
    }
    say("all attributes are there");
    return 0;
}
