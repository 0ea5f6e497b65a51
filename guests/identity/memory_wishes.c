/* A server may wish where its memory is, as V8 does by chance: it gets another place where the runtime's own memory is, and so that is in images.
 *
 * expect: same
 */
#include "guest.h"
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096, WISHES = 64 };

int main(void)
{
    char *got[WISHES];
    /* All of what programs can have. */
    for (uintptr_t n = 0; n < WISHES; n++) {
        void *wish = (void *)((n << 41) + ((uintptr_t)1 << 40));
        got[n] = mmap(wish, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(got[n] != MAP_FAILED);
        got[n][0] = (char)n;
        usleep(1000);
    }
    int sum = 0;
    for (int n = 0; n < WISHES; n++)
        sum += got[n][0];
    printf("%d\n", sum);
    return 0;
}
