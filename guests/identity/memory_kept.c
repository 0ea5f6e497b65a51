/* What a program has done with memory stays, also in a replica that continues from an image: code on its heap, and the names of memory that it shares.
 *
 * expect: same
 */
#include "guest.h"
#include <malloc.h>
#include <sys/mman.h>

enum { STEPS = 6, PAGE = 4096 };

static const unsigned char CODE[] = {0xb8, 0x2a, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */

/* Whether the line of this place among the mappings ends so. */
static int is_named(const void *place, const char *name)
{
    char line[512], wanted[64];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)place);
    while (fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = 0;
        size_t length = strlen(line), end = strlen(name);
        if (strncmp(line, wanted, strlen(wanted)) == 0)
            found = length >= end && strcmp(line + length - end, name) == 0;
    }
    fclose(maps);
    return found;
}

int main(void)
{
    /* On the heap, as small blocks are. */
    unsigned char *code = memalign(PAGE, PAGE);
    CHECK(code != NULL && code < (unsigned char *)sbrk(0));
    memcpy(code, CODE, sizeof CODE);
    CHECK(mprotect(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);

    int fd = memfd_create("code", 0);
    CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
    unsigned char *writable = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *executable = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    CHECK(writable != MAP_FAILED && executable != MAP_FAILED && close(fd) == 0);
    memcpy(writable + PAGE, CODE, sizeof CODE);
    char *shared = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    strcpy(shared, "shared");

    for (int step = 0; step < STEPS; step++) {
        struct timespec short_time = {.tv_nsec = 5 * NS_PER_MS};
        code[1] = writable[PAGE + 1] = (unsigned char)step;
        CHECK(((int (*)(void))code)() == step);
        CHECK(((int (*)(void))(executable + PAGE))() == step);
        CHECK(is_named(writable, "/memfd:code (deleted)") && is_named(executable, "/memfd:code (deleted)"));
        CHECK(is_named(shared, "/dev/zero (deleted)") && strcmp(shared, "shared") == 0);
        CHECK(nanosleep(&short_time, NULL) == 0);
    }
    say("all is as it was");
}
