/* Children have all of their parent's memory, whatever images are taken between: also what was written long before.
 *
 * expect: same
 */
#include "guest.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 8, PAGES = 512, PAGE = 4096 };

static unsigned sum(const unsigned char *table)
{
    unsigned all = 0;
    for (int page = 0; page < PAGES; page++)
        all = all * 31 + table[page * PAGE];
    return all % 251;
}

int main(void)
{
    unsigned char *mapped =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *heaped = malloc(PAGES * PAGE);
    CHECK(mapped != MAP_FAILED && heaped != NULL);
    for (int page = 0; page < PAGES; page++)
        mapped[page * PAGE] = heaped[page * PAGE] = (unsigned char)(page * 7 + 1);
    for (int round = 0; round < ROUNDS; round++) {
        int status;
        /* An entry passes. */
        CHECK(usleep(20000) == 0);
        mapped[(round * 61 % PAGES) * PAGE]++;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit((int)(sum(mapped) ^ sum(heaped)));
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK((unsigned)WEXITSTATUS(status) == (sum(mapped) ^ sum(heaped)));
        note("round %d: %d", round, WEXITSTATUS(status));
    }
    say("%d children", ROUNDS);
    return 0;
}
