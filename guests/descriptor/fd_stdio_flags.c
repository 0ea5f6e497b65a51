/* Status flags of standard output and standard error, those of duplicates, and of what was opened by their names; and that they have no position. All descriptors of one have one set of
 * flags. Also in a replica that continues from an image.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { STEPS = 6 };

static int has_position(int fd)
{
    return lseek(fd, 0, SEEK_CUR) >= 0;
}

static void look(const char *when, int fd)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    note("%s: %d has flags %o, position %ld", when, fd, fcntl(fd, F_GETFL), at == 0 ? 0 : (long)(at > 0 ? 1 : -errno));
}

/* Opened as a shell does it for `>`: what is printed stays, and no file is numbered for it. */
static void cut(int step)
{
    static const char text[] = "cut\n";
    char name[16];
    struct stat about;
    /* Where it is a file it would be cut short. */
    if (fstat(2, &about) != 0 || !S_ISFIFO(about.st_mode))
        return;
    int again = open("/dev/stderr", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(again >= 0 && write(again, text, 4) == 4 && close(again) == 0);
    CHECK(truncate("/dev/stderr", 0) == -1 && errno == EINVAL && ftruncate(2, 0) == -1 && errno == EINVAL);
    snprintf(name, sizeof name, "new%d", step);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && fstat(fd, &about) == 0 && close(fd) == 0);
    note("file %ld", (long)about.st_ino);
}

int main(void)
{
    int out = dup(1), err = fcntl(2, F_DUPFD, 20), file = open("file", O_RDWR | O_CREAT, 0600), on = 1;
    CHECK(out > 2 && err >= 20 && file > 2 && write(file, "text", 4) == 4);
    say("begins");
    fflush(stdout);
    for (int fd = 1; fd <= 2; fd++)
        look("at first", fd);
    int flags = fcntl(1, F_GETFL);
    CHECK(flags >= 0 && fcntl(out, F_SETFL, flags | O_NONBLOCK) == 0);
    CHECK(fcntl(1, F_GETFL) == fcntl(out, F_GETFL) && fcntl(1, F_GETFL) == (flags | O_NONBLOCK));
    CHECK(fcntl(err, F_SETFL, O_APPEND) == 0 && ioctl(2, FIONBIO, &on) == 0);
    CHECK((fcntl(2, F_GETFL) & (O_APPEND | O_NONBLOCK)) == (O_APPEND | O_NONBLOCK));
    on = 0;
    CHECK(ioctl(err, FIONBIO, &on) == 0 && (fcntl(2, F_GETFL) & (O_APPEND | O_NONBLOCK)) == O_APPEND);
    for (int step = 0; step < STEPS; step++) {
        CHECK(has_position(out) == has_position(1) && has_position(err) == has_position(2));
        look("output", 1);
        look("errors", 2);
        look("a duplicate of output", out);
        look("a duplicate of errors", err);
        int again = open("/dev/stderr", O_WRONLY | O_APPEND);
        CHECK(again >= 0);
        look("opened again", again);
        CHECK(close(again) == 0);
        cut(step);
        CHECK(lseek(file, 0, SEEK_CUR) == 4 && fcntl(file, F_GETFL) >= 0 && (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDWR);
        sleep_ms(5);
    }
    /* Nothing had this number when it was asked for. */
    CHECK(lseek(40, 0, SEEK_CUR) == -1 && errno == EBADF && dup2(1, 40) == 40);
    CHECK(has_position(40) == has_position(1));
    look("a number that was asked for before", 40);
    /* Its number was one of errors. */
    int number = dup(2);
    look("one that is closed", number);
    CHECK(close(number) == 0 && dup2(file, number) == number && lseek(number, 1, SEEK_SET) == 1);
    CHECK(dup2(err, file) == file);
    CHECK(has_position(file) == has_position(2));
    look("over a file", file);
    say("ends");
    return 0;
}
