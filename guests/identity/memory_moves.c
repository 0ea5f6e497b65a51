/* Memory that moves keeps what is written to it, before, between and after images that are taken meanwhile: an old mark of the kernel's, that a page was not written
 * since the image before, must not move with it.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 8 };

static void move(char *from, char *to)
{
    CHECK(mremap(from, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
}

static void show(const char *at)
{
    for (int n = 0; n < 2 * PAGES; n++)
        printf("%d ", at[n * PAGE]);
    printf("\n");
}

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *room = mmap(NULL, 64 * PAGE, PROT_NONE, flags, -1, 0);
    CHECK(room != MAP_FAILED);
    char *near = room + 4 * PAGE, *half = near + PAGES * PAGE, *far = room + 40 * PAGE;
    CHECK(mmap(near, 2 * PAGES * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == near);
    for (int n = 0; n < 2 * PAGES; n++)
        near[n * PAGE] = (char)n;
    usleep(1000);
    for (int round = 1; round < 6; round++) {
        /* One half goes away and comes back beside the other; both are written to at different times. */
        move(half, far);
        usleep(1000);
        far[round * PAGE] += 20;
        usleep(1000);
        move(far, half);
        usleep(1000);
        near[round * PAGE] += 40;
        half[round * PAGE] += 40;
        usleep(1000);
        near[round * PAGE] += 1;
        half[round * PAGE] += 1;
        usleep(1000);
        near[(round + 1) * PAGE] += 1;
        usleep(1000);
        show(near);
    }
    return 0;
}
