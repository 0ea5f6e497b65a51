/* Private mappings of files: pages that the process has written, whose part of the file is cut off or given back later, while images are taken.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>

static char *mapped(int fd, size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

int main(void)
{
    char text[] = "of the file";
    int fd = open("cut", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 16384) == 0 && pwrite(fd, text, sizeof text, 0) == (ssize_t)sizeof text);
    CHECK(pwrite(fd, text, sizeof text, 8192) == (ssize_t)sizeof text);
    char *at = mapped(fd, 16384);
    memcpy(at, "own", 3);
    memcpy(at + 4096, "own", 3);
    memcpy(at + 8192, "own", 3);
    memset(at + 12288, 1, 4096);
    /* Zeros that it has written over what the file has. */
    char *zeros = mapped(fd, 4096);
    memset(zeros, 0, 4096);
    sleep_ms(20);
    say("%.11s, %.11s, %d", at, at + 8192, zeros[0]);
    sleep_ms(20);
    CHECK(ftruncate(fd, 12288) == 0);
    sleep_ms(20);
    say("%.11s, %.11s, %d", at, at + 8192, zeros[0]);
    /* The file's again. */
    CHECK(madvise(at + 8192, 4096, MADV_DONTNEED) == 0);
    sleep_ms(20);
    say("%.11s, %.11s, %d", at, at + 8192, zeros[0]);
    sleep_ms(20);
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, 16384) == 0);
    sleep_ms(20);
    say("%d, %d, %d", at[0], at[8192], at[12288]);
    sleep_ms(20);
    say("%d", zeros[0]);
    CHECK(close(fd) == 0);
    sleep_ms(20);
    say("%d, %d", at[4096], at[12288]);
    return 0;
}
