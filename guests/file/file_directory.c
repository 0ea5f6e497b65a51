/* Directories: 500 entries made in an odd order come in one order; telldir, seekdir, rewinddir, scandir, nftw, glob.
 *
 * expect: same
 */
#include "guest.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { FILES = 500 };
static int walked;
static unsigned char seen[FILES];

static int visit(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)ftw;
    note("%s %d %ld", path, kind, (long)st->st_ino);
    walked++;
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(void)
{
    char name[64];
    CHECK(mkdir("many", 0755) == 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/%d", i * 317 % FILES);
        int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    DIR *dir = opendir("many");
    CHECK(dir);
    struct dirent *entry;
    int entries = 0, files = 0, others = 0;
    long half = 0;
    char *half_name = NULL;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            int n = atoi(entry->d_name);
            CHECK(n >= 0 && n < FILES && !seen[n] && entry->d_ino != 0 && entry->d_type == DT_REG);
            seen[n] = 1;
            files++;
        } else {
            CHECK(entry->d_type == DT_DIR);
            others++;
        }
        if (entries < 40)
            note("%s ino %ld off %ld", entry->d_name, (long)entry->d_ino, (long)entry->d_off);
        if (half_name == NULL && entries > 0 && half)
            half_name = strdup(entry->d_name);
        if (entries == 250)
            half = telldir(dir);
        entries++;
    }
    say("%d files, %d others", files, others);
    CHECK(half_name);
    seekdir(dir, half);
    CHECK((entry = readdir(dir)) && strcmp(entry->d_name, half_name) == 0);
    note("after half: %s", half_name);
    rewinddir(dir);
    CHECK(unlink("many/7") == 0);
    for (entries = 0; readdir(dir); entries++)
        ;
    /* Entries removed before the rewind are gone. */
    rewinddir(dir);
    for (entries = 0; readdir(dir); entries++)
        ;
    say("%d entries after one was removed", entries);
    CHECK(closedir(dir) == 0);

    struct dirent **list;
    int n = scandir("many", &list, NULL, alphasort);
    say("scandir: %d, first %s, last %s", n, list[0]->d_name, list[n - 1]->d_name);

    glob_t found;
    CHECK(glob("many/1*", 0, NULL, &found) == 0);
    say("glob: %zu, %s", found.gl_pathc, found.gl_pathv[0]);
    for (size_t i = 0; i < 5; i++)
        note("%s", found.gl_pathv[i]);

    CHECK(mkdir("tree", 0755) == 0 && mkdir("tree/b", 0755) == 0 && mkdir("tree/a", 0755) == 0);
    CHECK(symlink("a", "tree/link") == 0);
    CHECK(nftw("tree", visit, 8, FTW_PHYS) == 0);
    say("nftw: %d", walked);

    int fd = open("tree", O_RDONLY | O_DIRECTORY);
    char buffer[1024];
    CHECK_ERRNO(syscall(SYS_getdents64, fd, buffer, 8), EINVAL);
    long len = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
    CHECK(len > 0 && syscall(SYS_getdents64, fd, buffer, sizeof buffer) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && syscall(SYS_getdents64, fd, buffer, sizeof buffer) == len);
    say("getdents64: %ld bytes", len);
    CHECK_ERRNO(read(fd, buffer, 1), EISDIR);
    CHECK(close(fd) == 0);
    fd = open("many/1", O_RDONLY);
    CHECK_ERRNO(syscall(SYS_getdents64, fd, buffer, sizeof buffer), ENOTDIR);
    CHECK(close(fd) == 0);
    CHECK_ERRNO(open("many", O_RDONLY | O_CREAT, 0600), EISDIR);

    /* The host's own directory, in one order. */
    dir = opendir("/etc");
    CHECK(dir);
    char *names[4096];
    int count = 0;
    while ((entry = readdir(dir)) && count < 4096) {
        if (count < 30)
            note("/etc: %s type %d", entry->d_name, entry->d_type);
        names[count++] = strdup(entry->d_name);
    }
    qsort(names, (size_t)count, sizeof *names, by_name);
    CHECK(closedir(dir) == 0);
    say("/etc has %d entries, last %s", count, names[count - 1]);
    return 0;
}
