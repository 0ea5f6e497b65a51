/* Shared mappings of files: bytes written through them are in the file; sync calls; fallocate.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/stat.h>

int main(void)
{
    struct stat st;
    int fd = open("map", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    sleep_ms(20);
    memcpy(at + 4096, "mapped", 6);
    char text[8] = {0};
    CHECK(pread(fd, text, 6, 4096) == 6 && strcmp(text, "mapped") == 0);
    CHECK(msync(at, 8192, MS_SYNC) == 0 && fsync(fd) == 0 && fdatasync(fd) == 0 && munmap(at, 8192) == 0);
    CHECK(sync_file_range(fd, 0, 0, 0) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
    sync();
    CHECK(fstat(fd, &st) == 0);
    say("size %ld", (long)st.st_size);
    note("m %ld.%09ld blocks %ld", (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_blocks);
    CHECK(fallocate(fd, 0, 0, 16384) == 0 && posix_fallocate(fd, 16384, 4096) == 0 && fstat(fd, &st) == 0);
    say("size %ld", (long)st.st_size);
    note("m %ld.%09ld blocks %ld", (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_blocks);
    int copy = open("copy", O_RDWR | O_CREAT, 0600);
    CHECK(lseek(fd, 4096, SEEK_SET) == 4096 && copy_file_range(fd, NULL, copy, NULL, 6, 0) == 6);
    CHECK(pread(copy, text, 6, 0) == 6 && fstat(copy, &st) == 0);
    say("copied %.6s", text);
    note("m %ld.%09ld", (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);

    /* A file that only a mapping has changed. */
    CHECK(close(copy) == 0 && close(fd) == 0);
    CHECK((fd = open("/dev/full", O_WRONLY)) >= 0);
    CHECK_ERRNO(write(fd, "x", 1), ENOSPC);
    CHECK(close(fd) == 0);
    return 0;
}
