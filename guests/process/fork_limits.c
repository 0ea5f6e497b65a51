/* Limits that a process sets for another one: that one sees them, and asks the same as its parent.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static void are(pid_t pid, int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {1, 1};
    CHECK(prlimit(pid, resource, NULL, &limit) == 0);
    note("limit %d: %lld, %lld", resource, (long long)limit.rlim_cur, (long long)limit.rlim_max);
    CHECK(limit.rlim_cur == soft && limit.rlim_max == hard);
}

static void same(rlim_t soft, rlim_t hard)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
}

static void check(pid_t pid, rlim_t unset)
{
    are(pid, RLIMIT_FSIZE, 100000, 200000);
    are(pid, RLIMIT_AS, 1L << 30, 1L << 31);
    are(pid, RLIMIT_NOFILE, 77, 99);
    struct rlimit limit;
    CHECK(prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit) == 0);
    CHECK(limit.rlim_cur == unset);
}

static void set(pid_t pid, int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard}, before;
    CHECK(prlimit(pid, resource, &limit, &before) == 0);
    note("limit %d was %llx, %llx", resource, (unsigned long long)before.rlim_cur, (unsigned long long)before.rlim_max);
}

int main(void)
{
    int down[2], status;
    struct rlimit own, unset;
    CHECK(getrlimit(RLIMIT_FSIZE, &own) == 0 && getrlimit(RLIMIT_MEMLOCK, &unset) == 0);
    CHECK(pipe(down) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(read(down[0], &byte, 1) == 1);
        check(0, unset.rlim_cur);
        sleep_ms(20);
        check(getpid(), unset.rlim_cur);
        sleep_ms(20);
        check(0, unset.rlim_cur);
        /* A file that becomes too long. */
        signal(SIGXFSZ, SIG_IGN);
        int fd = open("file", O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && pwrite(fd, "xx", 2, 99999) == 1);
        CHECK_ERRNO(pwrite(fd, "x", 1, 100000), EFBIG);
        fflush(stdout);
        _exit(0);
    }
    set(child, RLIMIT_FSIZE, 100000, 200000);
    set(child, RLIMIT_AS, 1L << 30, 1L << 31);
    set(child, RLIMIT_NOFILE, 77, 99);
    check(child, unset.rlim_cur);
    CHECK_ERRNO(prlimit(child, RLIMIT_AS, &(struct rlimit){2, 1}, NULL), EINVAL);
    CHECK_ERRNO(prlimit(child, RLIMIT_FSIZE, &(struct rlimit){2, 1}, NULL), EINVAL);
    same(own.rlim_cur, own.rlim_max);
    CHECK(write(down[1], "x", 1) == 1);
    sleep_ms(30);
    check(child, unset.rlim_cur);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    same(own.rlim_cur, own.rlim_max);
    CHECK_ERRNO(prlimit(child, RLIMIT_FSIZE, NULL, &own), ESRCH);
    say("all limits are there");
    return 0;
}
