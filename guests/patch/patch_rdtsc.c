/* The time stamp counter in a loop: it advances when its place is replaced, and is the same everywhere.
 *
 * expect: same
 * net: 2 places, 6000 executions
 */
#include "patch.h"

int main(void)
{
    uint64_t last = 0, sum = 0;
    uint32_t processor = 0;
    for (int i = 0; i < 10 * OFTEN; i++) {
        uint64_t now = stamp();
        CHECK(now >= last);
        sum += now - last;
        last = stamp_p(&processor);
        CHECK(last >= now);
    }
    note("%llu %llu", (unsigned long long)last, (unsigned long long)sum);
    say("it went on");
    return 0;
}
