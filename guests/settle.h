/* Waits until all other threads of a guest sleep: for guests of sequences that have one thread act at a time. */
#ifndef SETTLE_H
#define SETTLE_H

#include "guest.h"
#include <fcntl.h>
#include <link.h>

#define MOST_THREADS 8

static int is_skein;

static int find_skein(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    *(int *)found |= strstr(info->dlpi_name, "libskein") != NULL;
    return 0;
}

static inline void settle_begin(void)
{
    dl_iterate_phdr(find_skein, &is_skein);
}

/* What the kernel says about the calling thread, for `settle`; not needed under Skein. */
static inline int own_status(void)
{
    char path[64];
    if (is_skein)
        return -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", gettid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

/* What the kernel says about a thread. */
struct asleep {
    /* Its number of switches if it sleeps by its state; -1 otherwise. */
    long switches;
    int thread;
};

static inline struct asleep asleep_of(int status)
{
    char text[4096];
    ssize_t n = pread(status, text, sizeof text - 1, 0);
    CHECK(n > 0);
    text[n] = 0;
    const char *state = strstr(text, "State:\t"), *thread = strstr(text, "\nPid:\t"),
               *count = strstr(text, "\nvoluntary_ctxt_switches:\t");
    CHECK(state != NULL && thread != NULL && count != NULL);
    return (struct asleep){state[7] == 'S' ? atol(count + 26) : -1, atoi(thread + 6)};
}

/* Whether a thread sleeps in a call: one that is about to look once more whether it must sleeps by its state alone. */
static inline int is_in_call(int thread)
{
    char text[256], path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int call = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(call >= 0);
    ssize_t n = read(call, text, sizeof text);
    CHECK(close(call) == 0);
    return n > 0 && text[0] != 'r';
}

/* Waits until the threads with these statuses sleep. */
static inline void settle(const int *statuses, int n)
{
    if (is_skein) {
        for (int i = 0; i < 60; i++)
            sched_yield();
        return;
    }
    long before[MOST_THREADS];
    CHECK(n <= MOST_THREADS);
    for (int i = 0; i < n; i++)
        before[i] = -1;
    for (int in_calls = 0;;) {
        int same = 1;
        struct asleep now[MOST_THREADS];
        for (int i = 0; i < n; i++) {
            now[i] = asleep_of(statuses[i]);
            same &= now[i].switches >= 0 && now[i].switches == before[i];
            before[i] = now[i].switches;
        }
        if (same && in_calls)
            return;
        /* Nothing may have happened since. */
        in_calls = same;
        for (int i = 0; i < n && in_calls; i++)
            in_calls = is_in_call(now[i].thread);
        if (!in_calls)
            sched_yield();
    }
}

#endif
