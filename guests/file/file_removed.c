/* What has no path: removed files, one whose path is another file's by now, a file without a name, sealed memory files; their numbers, names, modes, mappings.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/stat.h>

static void check(int fd, const char *text, mode_t mode)
{
    char buffer[32] = {0};
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 && (st.st_mode & 07777) == mode);
    CHECK(st.st_size == (off_t)strlen(text) && pread(fd, buffer, sizeof buffer, 0) == st.st_size);
    CHECK(strcmp(buffer, text) == 0);
    note("number %ld, m %ld.%09ld", (long)st.st_ino, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

static void name(int fd, const char *end)
{
    char path[64], to[256] = {0};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, to, sizeof to - 1);
    CHECK(n >= (ssize_t)strlen(end) && strcmp(to + n - strlen(end), end) == 0);
}

int main(void)
{
    int removed = open("removed", O_RDWR | O_CREAT | O_APPEND, 0400);
    CHECK(removed >= 0 && unlink("removed") == 0);
    write_all(removed, "gone", 4);
    int again = open("removed", O_RDWR | O_CREAT, 0600);
    CHECK(again >= 0);
    int nameless = open(".", O_RDWR | O_TMPFILE, 0640);
    CHECK(nameless >= 0);
    write_all(nameless, "nameless", 8);
    int memory = memfd_create("a name", MFD_ALLOW_SEALING);
    CHECK(memory >= 0);
    write_all(memory, "sealed", 6);
    CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK) == 0);
    int large = memfd_create("large", 0);
    CHECK(large >= 0 && ftruncate(large, 3 * 4096 + 5) == 0);
    char *shared = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, large, 0);
    char *own = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, large, 4096);
    CHECK(shared != MAP_FAILED && own != MAP_FAILED);
    strcpy(shared + 2 * 4096, "both");
    strcpy(own, "own");
    /* What is in the second one is where the first one ends. */
    int first = memfd_create("first", 0), second = memfd_create("second", 0);
    CHECK(first >= 0 && second >= 0 && ftruncate(first, 4096) == 0);
    CHECK(pwrite(first, "first", 5, 0) == 5 && pwrite(second, "second", 6, 4096) == 6);
    char *wiped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(wiped != MAP_FAILED && madvise(wiped, 4096, MADV_DONTFORK) == 0);
    struct stat st;
    CHECK(fstat(again, &st) == 0);
    ino_t number = st.st_ino;
    sleep_ms(20);

    check(removed, "gone", 0400);
    check(nameless, "nameless", 0640);
    check(memory, "sealed", 0777);
    name(removed, "/removed (deleted)");
    name(nameless, " (deleted)");
    name(memory, "/memfd:a name (deleted)");
    CHECK(stat("removed", &st) == 0 && st.st_ino == number && st.st_nlink == 1 && unlink("removed") == 0);
    CHECK(fcntl(memory, F_GET_SEALS) == (F_SEAL_WRITE | F_SEAL_SHRINK));
    CHECK_ERRNO(write(memory, "x", 1), EPERM);
    CHECK_ERRNO(fcntl(large, F_ADD_SEALS, F_SEAL_GROW), EPERM);
    /* It was opened so that writes append. */
    CHECK(lseek(removed, 0, SEEK_SET) == 0);
    write_all(removed, " on", 3);
    check(removed, "gone on", 0400);
    CHECK(fcntl(removed, F_GETFL) & O_APPEND);
    CHECK(fstat(large, &st) == 0 && st.st_size == 3 * 4096 + 5);
    CHECK(strcmp(own + 4096, "both") == 0 && strcmp(own, "own") == 0 && shared[4096] == 0);
    char text[8] = {0};
    CHECK(pread(first, text, 5, 0) == 5 && strcmp(text, "first") == 0);
    CHECK(pread(second, text, 6, 4096) == 6 && strcmp(text, "second") == 0);
    strcpy(shared + 2 * 4096, "seen");
    CHECK(strcmp(own + 4096, "seen") == 0);
    CHECK(linkat(AT_FDCWD, "/proc/self/fd/5", AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0 && nameless == 5);
    CHECK(stat("named", &st) == 0 && st.st_size == 8 && unlink("named") == 0);
    say("all there");
    return 0;
}
