/* Shared by guests that spin: two threads, and time for the other one to run first natively. */
#ifndef SPIN_H
#define SPIN_H

#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <stdatomic.h>
#include <stdbool.h>

#define PAUSE() __builtin_ia32_pause()

/* Memory that forked processes share. */
static inline void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

#endif
