/* futex by an inline system call: a wait that times out.
 *
 * expect: same
 * or fatal: futex
 */
#include "raw.h"
#include <linux/futex.h>

int main(void)
{
    uint32_t word = 1;
    struct timespec ts = to_timespec(20 * NS_PER_MS);
    say("before");
    fflush(stdout);
    CHECK(raw6(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0) == -EAGAIN);
    CHECK(raw6(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 1, (long)&ts, 0, 0) == -ETIMEDOUT);
    CHECK(raw6(SYS_futex, (long)&word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 0);
    say("a futex by inline system calls");
    return 0;
}
