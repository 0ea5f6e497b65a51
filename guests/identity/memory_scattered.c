/* Pages here and there of a large memory change again and again: so many rows of them that the kernel tells of them in several parts.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 8, ROWS = 340, EVERY = 6, PAGES = ROWS * EVERY, PAGE = 4096 };

int main(void)
{
    unsigned char *table =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(table != MAP_FAILED);
    for (int page = 0; page < PAGES; page++)
        table[page * PAGE] = 1;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned sum = 0;
        /* An entry passes. */
        CHECK(usleep(20000) == 0);
        for (int page = 0; page < PAGES; page++)
            sum = sum * 31 + table[page * PAGE];
        note("round %d: %u", round, sum);
        for (int row = 0; row < ROWS; row++)
            table[(row * EVERY + round % 3) * PAGE] += (unsigned char)(row + round);
    }
    say("%d rounds", ROUNDS);
    return 0;
}
