/* /proc and /sys: a server reads the same there in two runs; links of descriptors; the list of descriptors.
 *
 * expect: same
 */
#include "guest.h"
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

static void show(const char *path)
{
    char buffer[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    size_t length = 0;
    ssize_t n;
    while ((n = read(fd, buffer + length, sizeof buffer - 1 - length)) > 0)
        length += (size_t)n;
    CHECK(n == 0 && close(fd) == 0);
    buffer[length] = 0;
    for (char *line = strtok(buffer, "\n"); line; line = strtok(NULL, "\n"))
        note("%s: %s", path, line);
}

int main(void)
{
    static const char *const paths[] = {"/proc/self/stat",     "/proc/self/statm",  "/proc/self/status",
                                        "/proc/self/maps",     "/proc/self/limits", "/proc/self/io",
                                        "/proc/self/cmdline",  "/proc/self/comm",   "/proc/self/mounts",
                                        "/proc/self/cgroup",   "/proc/meminfo",     "/proc/stat",
                                        "/proc/uptime",        "/proc/loadavg",     "/proc/cpuinfo",
                                        "/proc/vmstat",        "/proc/version",     "/proc/sys/vm/overcommit_memory",
                                        "/proc/mounts",        "/etc/mtab",         "/proc/sys/kernel/random/uuid",
                                        "/proc/thread-self/stat", "/proc/sys/net/core/somaxconn", "/proc/net/tcp", "/proc/net/dev",
                                        "/sys/devices/system/cpu/online"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        show(paths[i]);

    /* By a relative path. */
    int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    CHECK(proc >= 0);
    int fd = openat(proc, "self/stat", O_RDONLY);
    char text[1024] = {0};
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0 && close(proc) == 0);
    note("relative: %s", text);
    CHECK((fd = openat(AT_FDCWD, "/dev/../dev/urandom", O_RDONLY)) >= 0);
    unsigned char bytes[4];
    CHECK(read(fd, bytes, 4) == 4 && close(fd) == 0);
    note("random %02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3]);

    /* Links. */
    int ends[2], set = epoll_create1(0);
    CHECK(pipe(ends) == 0 && set >= 0);
    int probes[] = {ends[0], ends[1], set, 0};
    for (size_t i = 0; i < 4; i++) {
        char path[64], to[256] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", probes[i]);
        CHECK(readlink(path, to, sizeof to - 1) > 0);
        note("%s -> %s", path, to);
        if (i < 2)
            CHECK(strncmp(to, "pipe:[", 6) == 0);
        if (i == 3)
            say("0 is %s", to);
    }
    char exe[512] = {0};
    CHECK(readlink("/proc/self/exe", exe, sizeof exe - 1) > 0 && strstr(exe, "file_kernel"));

    /* Closing all descriptors by the list. */
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    int closed = 0, own = dirfd(dir), list[64], n = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) > 2 && atoi(entry->d_name) != own)
            list[n++] = atoi(entry->d_name);
    for (int i = 0; i < n; i++) {
        CHECK(close(list[i]) == 0);
        closed++;
    }
    CHECK(closedir(dir) == 0);
    say("closed %d", closed);
    dir = opendir("/proc/self/task");
    CHECK(dir);
    for (n = 0; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    CHECK(closedir(dir) == 0);
    say("%d thread", n);

    struct stat st;
    CHECK(stat("/proc/self", &st) == 0 && S_ISDIR(st.st_mode));
    note("/proc/self: dev %lx ino %lx m %ld", (long)st.st_dev, (long)st.st_ino, (long)st.st_mtim.tv_sec);
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0);
    note("processors %d, memory %lu, LANG %s, PATH %s", get_nprocs(), info.totalram, getenv("LANG"), getenv("PATH"));
    return 0;
}
