/* getrandom by an inline system call.
 *
 * expect: same
 * or fatal: getrandom
 */
#include "raw.h"

int main(void)
{
    uint64_t bytes[4] = {0};
    say("before");
    fflush(stdout);
    CHECK(raw3(SYS_getrandom, (long)bytes, sizeof bytes, 0) == sizeof bytes);
    CHECK(bytes[0] != bytes[1]);
    note("%016llx %016llx", (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
    say("randomness by an inline system call");
    return 0;
}
