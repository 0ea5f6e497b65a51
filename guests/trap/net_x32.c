/* The x32 interface is the same calls with a bit set in their numbers: none of them may get around the net.
 *
 * expect: same
 * refused: system call 1073741863
 */
#include "raw.h"

#define X32_BIT 0x40000000

int main(void)
{
    long id = raw3(X32_BIT + SYS_getpid, 0, 0, 0);
    note("x32 getpid: %s", id > 0 ? "works" : strerror((int)-id));
    struct timespec now = {0, 0};
    long result = raw3(X32_BIT + SYS_clock_gettime, CLOCK_REALTIME, (long)&now, 0);
    note("x32 clock_gettime: %ld, %ld.%09ld", result, (long)now.tv_sec, now.tv_nsec);
    say("asked by the x32 interface");
    return 0;
}
