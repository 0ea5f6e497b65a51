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

/* A sleeping thread's number of switches; -1 for one that runs. */
static inline long switches(int status)
{
    char text[4096];
    ssize_t n = pread(status, text, sizeof text - 1, 0);
    CHECK(n > 0);
    text[n] = 0;
    const char *state = strstr(text, "State:\t"), *count = strstr(text, "\nvoluntary_ctxt_switches:\t");
    CHECK(state != NULL && count != NULL);
    return state[7] == 'S' ? atol(count + 26) : -1;
}

/* Waits until the threads with these statuses sleep. */
static inline void settle(const int *statuses, int n)
{
    if (is_skein) {
        for (int i = 0; i < 60; i++)
            sched_yield();
        return;
    }
    long before[MOST_THREADS], now[MOST_THREADS];
    CHECK(n <= MOST_THREADS);
    for (int i = 0; i < n; i++)
        before[i] = -1;
    for (;;) {
        int same = 1;
        for (int i = 0; i < n; i++) {
            now[i] = switches(statuses[i]);
            same &= now[i] >= 0 && now[i] == before[i];
        }
        if (same)
            return;
        memcpy(before, now, sizeof now);
        sched_yield();
    }
}

#endif
