/* pipe and pipe2: data in order, end of file, flags, fstat, lseek, wrong direction.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>

int main(void)
{
    int p[2];
    char buffer[16] = {0};
    struct stat st;
    CHECK(pipe(p) == 0);
    write_all(p[1], "abc", 3);
    write_all(p[1], "def", 3);
    CHECK(read(p[0], buffer, 4) == 4 && memcmp(buffer, "abcd", 4) == 0);
    CHECK(read(p[0], buffer, sizeof buffer) == 2 && memcmp(buffer, "ef", 2) == 0);
    CHECK(write(p[1], "", 0) == 0);
    CHECK_ERRNO(read(p[1], buffer, 1), EBADF);
    CHECK_ERRNO(write(p[0], buffer, 1), EBADF);
    CHECK_ERRNO(lseek(p[0], 0, SEEK_SET), ESPIPE);
    CHECK(fstat(p[0], &st) == 0 && S_ISFIFO(st.st_mode));
    say("access %d %d", (fcntl(p[0], F_GETFL) & O_ACCMODE) == O_RDONLY, (fcntl(p[1], F_GETFL) & O_ACCMODE) == O_WRONLY);
    write_all(p[1], "tail", 4);
    CHECK(close(p[1]) == 0);
    CHECK(read(p[0], buffer, sizeof buffer) == 4);
    CHECK(read(p[0], buffer, sizeof buffer) == 0);
    CHECK(read(p[0], buffer, sizeof buffer) == 0);
    CHECK(close(p[0]) == 0);
    say("end of file after the data");

    CHECK(pipe2(p, O_NONBLOCK | O_CLOEXEC) == 0);
    CHECK((fcntl(p[0], F_GETFL) & O_NONBLOCK) && (fcntl(p[1], F_GETFL) & O_NONBLOCK));
    CHECK(fcntl(p[0], F_GETFD) == FD_CLOEXEC && fcntl(p[1], F_GETFD) == FD_CLOEXEC);
    CHECK_ERRNO(read(p[0], buffer, 1), EAGAIN);
    CHECK_ERRNO(pipe2(p, 0x1), EINVAL);
    say("pipe2 flags");
    return 0;
}
