/* System calls by inline assembly, as in a program that goes around libc: the safety net must see them. */
#ifndef RAW_H
#define RAW_H

#include "guest.h"
#include <sys/syscall.h>

static inline __attribute__((unused)) long raw6(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline __attribute__((unused)) long raw3(long number, long a, long b, long c)
{
    return raw6(number, a, b, c, 0, 0, 0);
}

#endif
