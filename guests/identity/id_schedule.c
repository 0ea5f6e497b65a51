/* A program's questions about its place on the machine: policy, priority, nice, limits, clock resolution, residency, release. As on Linux as far as any Linux
 * must answer; the rest (stderr) must be equal on replicas.
 *
 * expect: same
 */
#define _GNU_SOURCE
#include "raw.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>

int main(void)
{
    struct sched_param param = {.sched_priority = 7};
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    CHECK(sched_getparam(0, &param) == 0 && param.sched_priority == 0);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &param) == 0);
    param.sched_priority = 5;
    CHECK(sched_setscheduler(0, SCHED_OTHER, &param) == -1 && errno == EINVAL);
    CHECK(sched_setscheduler(0, 77, &param) == -1 && errno == EINVAL);
    struct timespec slice, tick;
    CHECK(sched_rr_get_interval(0, &slice) == 0);
    note("slice %ld", slice.tv_nsec);

    errno = 0;
    int before = getpriority(PRIO_PROCESS, 0);
    CHECK(errno == 0);
    CHECK(nice(3) == before + 3 && getpriority(PRIO_PROCESS, 0) == before + 3);
    pid_t child = fork();
    if (child == 0)
        _exit(getpriority(PRIO_PROCESS, 0) == before + 3 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    CHECK(clock_getres(CLOCK_MONOTONIC, &tick) == 0 && tick.tv_sec == 0 && tick.tv_nsec == 1);
    CHECK(clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0);
    note("tick %ld", tick.tv_nsec);
    CHECK(clock_getres(77, &tick) == -1 && errno == EINVAL);

    struct rlimit limit = {0, 0};
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        CHECK(getrlimit(resource, &limit) == 0);
        note("limit %d: %llx %llx", resource, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
    limit.rlim_cur = limit.rlim_max = 3;
    CHECK(setrlimit(RLIMIT_NICE, &(struct rlimit){0, 0}) == 0);
    CHECK(getrlimit(RLIMIT_NICE, &limit) == 0 && limit.rlim_cur == 0 && limit.rlim_max == 0);
    CHECK(getrlimit(99, &limit) == -1 && errno == EINVAL);
    /* A limit of the address space leaves room for what the server itself has. */
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){64 << 20, 64 << 20}) == 0);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == 64 << 20 && limit.rlim_max == 64 << 20);
    CHECK_ERRNO(setrlimit(RLIMIT_AS, &(struct rlimit){2, 1}), EINVAL);

    char *memory = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory[0] = 1;
    unsigned char resident[3] = {9, 9, 9};
    CHECK(mincore(memory, 3 * 4096, resident) == 0 && (resident[0] & 1) == 1);
    note("resident %d %d %d", resident[0], resident[1], resident[2]);
    CHECK(mlock(memory, 4096) == 0 && munlock(memory, 4096) == 0);
    /* Guard pages: a kernel before 6.13 has none, and Skein answers as it does. */
    note("guard pages: %s", madvise(memory, 4096, 102) == 0 ? "made" : strerror(errno));
    CHECK(madvise(memory, 4096, 103) == 0 || errno == EINVAL);

    struct utsname name;
    CHECK(uname(&name) == 0 && strcmp(name.sysname, "Linux") == 0 && strcmp(name.machine, "x86_64") == 0);
    note("release %s version %s", name.release, name.version);
    CHECK(prctl(PR_SET_NAME, "guest") == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    int reaps = 0;
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &reaps) == 0 && reaps == 1);
    CHECK(prctl(12345) == -1 && errno == EINVAL);
    say("asked about the machine");
    return 0;
}
