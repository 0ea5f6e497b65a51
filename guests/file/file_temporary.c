/* Names of temporary files: the same in two runs; O_TMPFILE and giving it a name.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>

int main(void)
{
    char file[] = "/mnt/f-XXXXXX", directory[] = "d-XXXXXX", suffixed[] = "s-XXXXXX.txt";
    struct stat st;
    int fd = mkstemp(file);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0 && close(fd) == 0);
    note("%s ino %ld m %ld.%09ld", file, (long)st.st_ino, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    CHECK(mkdtemp(directory) == directory && stat(directory, &st) == 0 && S_ISDIR(st.st_mode));
    fd = mkostemps(suffixed, 4, O_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    note("%s %s", directory, suffixed);
    char name[L_tmpnam];
    CHECK(tmpnam_r(name));
    char *other = tempnam("/mnt", "pre");
    CHECK(other);
    note("%s %s", name, other);
    FILE *stream = tmpfile();
    CHECK(stream && fputs("text", stream) >= 0 && fflush(stream) == 0 && fstat(fileno(stream), &st) == 0);
    say("tmpfile: %ld bytes, %ld links", (long)st.st_size, (long)st.st_nlink);
    note("tmpfile ino %ld", (long)st.st_ino);
    CHECK(fclose(stream) == 0);

    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "nameless", 8) == 8 && fstat(fd, &st) == 0);
    say("O_TMPFILE: %ld bytes, %ld links", (long)st.st_size, (long)st.st_nlink);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ino_t ino = st.st_ino;
    CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
    CHECK(stat("named", &st) == 0 && st.st_ino == ino && st.st_nlink == 1);
    note("named ino %ld m %ld.%09ld", (long)st.st_ino, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    CHECK(close(fd) == 0);
    return 0;
}
