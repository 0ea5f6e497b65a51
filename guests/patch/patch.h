/* Instructions that trap, in functions of their own: each is one place, which the runtime replaces after some executions. */
#ifndef PATCH_H
#define PATCH_H

#include "guest.h"
#include <sys/syscall.h>

/* More executions than the runtime waits for. */
#define OFTEN 300

static __attribute__((noinline, unused)) uint64_t stamp(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static __attribute__((noinline, unused)) uint64_t stamp_p(uint32_t *processor)
{
    uint32_t low, high;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(*processor));
    return (uint64_t)high << 32 | low;
}

static __attribute__((noinline, unused)) long call(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    /* The code behind libc's calls: without it the function would end there, with no room. */
    __asm__ volatile("syscall\n\tcmp $-4096, %%rax"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

#endif
