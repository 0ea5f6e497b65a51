/* chroot: paths below another root are other files, for the process that changed it and for its children alone.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>
#include <sys/wait.h>

static void read_line(int at, const char *path, char *line, size_t size)
{
    int fd = openat(at, path, O_RDONLY);
    CHECK(fd >= 0);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
    ssize_t n = read(fd, line, size - 1);
    CHECK(n > 0 && close(fd) == 0);
    line[n] = 0;
    line[strcspn(line, "\n")] = 0;
}

static void end_of(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    char before[256], after[256];
    struct stat root, etc, st;
    CHECK(stat("/", &root) == 0 && stat("/etc", &etc) == 0);
    CHECK_ERRNO(stat("/passwd", &st), ENOENT);
    CHECK_ERRNO(stat("../passwd", &st), ENOENT);
    read_line(AT_FDCWD, "/etc/passwd", before, sizeof before);
    int outside = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(outside >= 0);
    CHECK_ERRNO(chroot("/nowhere"), ENOENT);
    CHECK_ERRNO(chroot("/etc/passwd"), ENOTDIR);

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(chroot("/etc/") == 0);
        /* The working directory is where it was. */
        CHECK_ERRNO(stat("/mnt", &st), ENOENT);
        CHECK(stat(".", &st) == 0 && st.st_ino != etc.st_ino);
        CHECK(chdir("/") == 0);
        CHECK(stat("/", &st) == 0 && st.st_ino == etc.st_ino && st.st_ino != root.st_ino);
        CHECK(stat("..", &st) == 0 && st.st_ino == etc.st_ino);
        read_line(AT_FDCWD, "/passwd", after, sizeof after);
        CHECK(strcmp(before, after) == 0);
        read_line(AT_FDCWD, "../passwd", after, sizeof after);
        CHECK_ERRNO(stat("/etc/passwd", &st), ENOENT);
        read_line(outside, "etc/passwd", after, sizeof after);
        char name[64];
        CHECK(getcwd(name, sizeof name) && strcmp(name, "/") == 0);

        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            read_line(AT_FDCWD, "/passwd", after, sizeof after);
            CHECK(chroot("/alternatives") == 0 && chdir("/") == 0);
            CHECK_ERRNO(stat("/passwd", &st), ENOENT);
            /* Out again, by a descriptor from before. */
            CHECK(fchdir(outside) == 0 && chroot(".") == 0);
            CHECK(stat("/", &st) == 0 && st.st_ino == root.st_ino);
            read_line(AT_FDCWD, "/etc/passwd", after, sizeof after);
            CHECK(strcmp(before, after) == 0);
            _exit(0);
        }
        end_of(grandchild);
        read_line(AT_FDCWD, "/passwd", after, sizeof after);
        _exit(0);
    }
    end_of(child);

    CHECK_ERRNO(stat("/passwd", &st), ENOENT);
    CHECK(stat("/", &st) == 0 && st.st_ino == root.st_ino);
    read_line(AT_FDCWD, "/etc/passwd", after, sizeof after);
    CHECK(strcmp(before, after) == 0);
    say("a root of its own");
    return 0;
}
