/* What is said about more files of the host than one question holds: a server that waits for an answer has read some of it already, and continues from an image with that.
 *
 * expect: same
 */
#include "guest.h"
#include <dirent.h>
#include <sys/stat.h>

enum { MOST = 20000 };

static ino_t numbers[MOST];

/* The numbers of all that is in a directory, looked at by path or by descriptor. */
static int look(const char *directory, int again)
{
    DIR *listing = opendir(directory);
    int count = 0;
    if (listing == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL && count < MOST;) {
        struct stat about;
        if (fstatat(dirfd(listing), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (again)
            CHECK(about.st_ino == numbers[count]);
        numbers[count++] = about.st_ino;
    }
    CHECK(closedir(listing) == 0);
    return count;
}

int main(void)
{
    static const char *const directories[] = {"/usr/bin", "/usr/lib/x86_64-linux-gnu", "/etc"};
    for (unsigned i = 0; i < sizeof directories / sizeof *directories; i++) {
        int first = look(directories[i], 0), second = look(directories[i], 1);
        CHECK(first == second);
        note("%d files", first);
    }
    say("the same twice");
    return 0;
}
