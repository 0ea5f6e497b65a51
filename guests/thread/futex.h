/* The futex system call for guests that use it themselves, as language runtimes do. */
#ifndef FUTEX_H
#define FUTEX_H

#include "guest.h"
#include <linux/futex.h>
#include <sys/syscall.h>

static inline __attribute__((unused)) long futex(uint32_t *word, int op, uint32_t value, const void *timeout_or_count,
                                                 uint32_t *word2, uint32_t value3)
{
    return syscall(SYS_futex, word, op, value, timeout_or_count, word2, value3);
}

#endif
