/* 32-bit system calls by `int 0x80`: their numbers mean other calls (1 is exit, not write), so the net must not mistake them.
 *
 * expect: same
 * refused: 32-bit system call 20
 */
#include "raw.h"

static long int80(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

int main(void)
{
    long id = int80(20, 0, 0, 0);
    note("getpid: %s", id > 0 ? "works" : strerror((int)-id));
    long now = int80(13, 0, 0, 0);
    note("time: %ld", now);
    say("asked by int 0x80");
    return 0;
}
