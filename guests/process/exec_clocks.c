/* Clocks that a program which another one executed reads through the kernel's vDSO, whose functions libc calls by itself there: they are those of the system calls,
 * also in a replica that continues from an image. The first program does not see a vDSO.
 *
 * expect: same
 */
#include "guest.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { STEPS = 12 };

typedef int clock_function(clockid_t, struct timespec *);
typedef int day_function(struct timeval *, void *);
typedef time_t time_function(time_t *);

/* A function of the vDSO. */
static void *function_of(const char *base, const char *name)
{
    const Elf64_Ehdr *head = (const void *)base;
    const Elf64_Shdr *sections = (const void *)(base + head->e_shoff);
    for (int n = 0; n < head->e_shnum; n++) {
        if (sections[n].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const void *)(base + sections[n].sh_offset);
        const char *names = base + sections[sections[n].sh_link].sh_offset;
        for (size_t at = 0; at < sections[n].sh_size / sizeof *symbols; at++)
            if (strcmp(names + symbols[at].st_name, name) == 0)
                return (void *)(base + symbols[at].st_value);
    }
    return NULL;
}

/* With images at its entries it continues from each of them. */
static void executed(const char *who)
{
    const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
    if (base == NULL) {
        note("%s: no vDSO", who);
        return;
    }
    clock_function *clock = (clock_function *)function_of(base, "__vdso_clock_gettime");
    day_function *day = (day_function *)function_of(base, "__vdso_gettimeofday");
    time_function *seconds = (time_function *)function_of(base, "__vdso_time");
    CHECK(clock != NULL && day != NULL && seconds != NULL);
    for (int step = 0; step < STEPS; step++) {
        struct timespec read, short_time = {.tv_nsec = 5 * NS_PER_MS};
        struct timeval of_day;
        int64_t before = now_ns(CLOCK_REALTIME);
        CHECK(clock(CLOCK_REALTIME, &read) == 0);
        int64_t between = read.tv_sec * NS_PER_S + read.tv_nsec;
        CHECK(day(&of_day, NULL) == 0);
        time_t at = seconds(NULL);
        int64_t after = now_ns(CLOCK_REALTIME);
        note("%s: step %d at %lld", who, step, (long long)between);
        CHECK(before <= between && between <= after);
        /* Those with a coarser unit may read the clock of the last tick. */
        CHECK(of_day.tv_sec * NS_PER_S + of_day.tv_usec * 1000 >= before - NS_PER_S);
        CHECK(of_day.tv_sec * NS_PER_S + of_day.tv_usec * 1000 <= after);
        CHECK(at * NS_PER_S >= before - 2 * NS_PER_S && at * NS_PER_S <= after);
        CHECK(nanosleep(&short_time, NULL) == 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        executed(pid == 0 ? "its child" : argv[1]);
        if (pid == 0)
            _exit(0);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        say("they saw the same clocks");
        return 0;
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *args[] = {argv[0], "executed", NULL};
        execv("/proc/self/exe", args);
        CHECK(!"executed");
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    say("ended");
}
