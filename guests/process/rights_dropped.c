/* A server that root starts makes its workers other users': users, groups, capabilities, limits, a root of their own, settings; locks of two processes.
 *
 * expect: same
 */
#include "guest.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &head, sets) == 0);
    note("capabilities %x %x %x, bound %d, bits %d, dumpable %d", sets[0].effective, sets[0].permitted,
         sets[0].inheritable, prctl(PR_CAPBSET_READ, CAP_CHOWN), prctl(PR_GET_SECUREBITS), prctl(PR_GET_DUMPABLE));
}

static void who(const char *text)
{
    uid_t u[3];
    gid_t g[3], others[8];
    CHECK(getresuid(&u[0], &u[1], &u[2]) == 0 && getresgid(&g[0], &g[1], &g[2]) == 0);
    int n = getgroups(8, others);
    CHECK(n >= 0);
    note("%s: users %d %d %d, groups %d %d %d, %d others, last %d", text, u[0], u[1], u[2], g[0], g[1], g[2], n,
         n ? (int)others[n - 1] : -1);
    char name[16] = {0};
    struct rlimit limit;
    mode_t mask = umask(0);
    umask(mask);
    CHECK(prctl(PR_GET_NAME, name) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    note("%s: name %s, mask %o, files %ld of %ld", text, name, mask, (long)limit.rlim_cur, (long)limit.rlim_max);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    note("%s: sizes %ld", text, (long)limit.rlim_cur);
    capabilities();
}

static void *waits(void *arg)
{
    sleep_ms(30);
    return arg;
}

static void work(int n, int fd)
{
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10 * n, .l_len = 4};
    CHECK(fcntl(fd, F_SETLK, &part) == 0);
    struct rlimit size = {.rlim_cur = 100000 + n, .rlim_max = 200000};
    CHECK(setrlimit(RLIMIT_FSIZE, &size) == 0);
    char name[16];
    snprintf(name, sizeof name, "worker %d", n);
    CHECK(prctl(PR_SET_NAME, name) == 0);
    umask(n);
    int is_root = geteuid() == 0;
    if (n == 2 && is_root)
        CHECK(chroot("below") == 0 && chdir("/") == 0);
    if (is_root) {
        CHECK(setgroups(2, (gid_t[]){7, 8}) == 0 && setresgid(5, 5, 5) == 0);
        if (n == 1) {
            CHECK(prctl(PR_CAPBSET_DROP, CAP_CHOWN) == 0 && prctl(PR_SET_KEEPCAPS, 1) == 0);
            CHECK(setresuid(33, 33, 0) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
        } else {
            CHECK(setresuid(34, 34, 34) == 0);
        }
    }
    pthread_t thread = spawn(waits, NULL);
    who(name);
    sleep_ms(20 + n);
    who(name);
    join(thread);
    who(name);
    part.l_start = 30 - 10 * n;
    CHECK_ERRNO(fcntl(fd, F_SETLK, &part), EAGAIN);
    if (n == 2 && is_root) {
        CHECK(access("/inside", F_OK) == 0);
        CHECK_ERRNO(open("/../etc/passwd", O_RDONLY), ENOENT);
    }
    sleep_ms(20);
    fflush(stdout);
    _exit(0);
}

int main(void)
{
    int fd = open("locked", O_RDWR | O_CREAT, 0600), status;
    CHECK(fd >= 0 && mkdir("below", 0755) == 0);
    int inside = open("below/inside", O_CREAT | O_WRONLY, 0644);
    CHECK(inside >= 0 && close(inside) == 0);
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = 1500;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(dup2(fd, 1400) == 1400);
    for (int n = 1; n <= 2; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            work(n, fd);
    }
    sleep_ms(25);
    CHECK(lseek(1400, 3, SEEK_SET) == 3 && lseek(fd, 0, SEEK_CUR) == 3);
    for (int n = 1; n <= 2; n++)
        CHECK(wait(&status) > 0 && status == 0);
    say("both ended");
    return 0;
}
