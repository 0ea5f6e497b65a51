/* Preloaded into nodes: a wall clock and a disk that a test sets. The file $SKEIN_TEST_HOSTS/PID has three numbers of 64 bits: ns to add to
 * the wall clock; ns to add in every second second besides; how long a sync of a file takes at least, in ns, or -1: until that is changed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OFF, IN_ODD_SECONDS, SYNC, NUMBERS };
static volatile int64_t *set;

__attribute__((constructor)) static void begin(void)
{
    const char *dir = getenv("SKEIN_TEST_HOSTS");
    char path[4096];
    if (dir == NULL || snprintf(path, sizeof path, "%s/%d", dir, (int)getpid()) >= (int)sizeof path)
        return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, NUMBERS * sizeof *set) != 0)
        return;
    void *at = mmap(NULL, NUMBERS * sizeof *set, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        set = at;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result != 0 || clock != CLOCK_REALTIME || set == NULL)
        return (int)result;
    int64_t ns = now->tv_nsec + set[OFF] % 1000000000 + (now->tv_sec % 2 != 0 ? set[IN_ODD_SECONDS] : 0);
    now->tv_sec += set[OFF] / 1000000000 + ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    if (now->tv_nsec < 0) {
        now->tv_nsec += 1000000000;
        now->tv_sec -= 1;
    }
    return 0;
}

static void stall(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    int64_t ns = set == NULL ? 0 : set[SYNC];
    for (; ns > 0; ns -= moment.tv_nsec)
        nanosleep(&moment, NULL);
    while (set != NULL && set[SYNC] < 0)
        nanosleep(&moment, NULL);
}

int fdatasync(int fd)
{
    stall();
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    stall();
    return (int)syscall(SYS_fsync, fd);
}
