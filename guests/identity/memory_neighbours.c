/* Neighbouring mappings that are alike are one to the server, whatever has happened to one of them before the other came: an image that was taken in between makes
 * the kernel keep them apart.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

/* The lines of /proc/self/maps that show these addresses. */
static int lines(const char *from, const char *to)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[5000];
    int count = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
        count += start < (unsigned long)to && end > (unsigned long)from;
    }
    fclose(maps);
    return count;
}

static void add(char *at, int pages)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
    for (int n = 0; n < pages; n++)
        at[n * PAGE] = (char)(n + 1);
    usleep(1000);
}

int main(void)
{
    char *room = mmap(NULL, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    char *at = room + PAGE;
    for (int part = 0; part < 4; part++)
        add(at + part * 4 * PAGE, 4);
    printf("%d line\n", lines(at, at + 16 * PAGE));
    usleep(1000);
    char *moved = mremap(at, 16 * PAGE, 40 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    usleep(1000);
    moved[3 * PAGE] = 'x';
    for (int n = 0; n < 16; n++)
        printf("%d ", moved[n * PAGE]);
    printf("%d\n", moved[39 * PAGE]);
    usleep(1000);
    /* In the place of what has moved is something else. */
    add(at, 2);
    CHECK(madvise(at, PAGE, MADV_DONTNEED) == 0);
    usleep(1000);
    printf("%d %d\n", at[0], at[PAGE]);
    return 0;
}
