/* Files that change around libc's functions: through a mapping that was made by a system call, and by holes that an `ioctl` makes. A replica that continues from an image has the
 * content, also where an image had the former one.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { STEPS = 8, PAGE = 4096 };

struct space { int16_t type, whence; int64_t start, len; int32_t system_id; uint32_t pid; int32_t more[4]; };
#define MAKE_HOLE _IOW('X', 43, struct space)

/* By its instruction, as a program without libc does. */
static long called(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth) : "rcx", "r11", "memory");
    return number;
}

static int new_file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
    return fd;
}

static char byte_of(int fd, off_t at)
{
    char byte;
    CHECK(pread(fd, &byte, 1, at) == 1);
    return byte;
}

int main(void)
{
    const int both = PROT_READ | PROT_WRITE;
    int by_function = new_file("by_function"), by_instruction = new_file("by_instruction"), holes = new_file("holes");
    char *first = (char *)syscall(SYS_mmap, 0L, 2L * PAGE, (long)both, (long)MAP_SHARED, (long)by_function, 0L);
    char *second = (char *)called(SYS_mmap, 0, 2 * PAGE, both, MAP_SHARED, by_instruction, 0);
    CHECK(first != MAP_FAILED && (long)second > 0);
    char full[PAGE];
    for (int step = 0; step < STEPS; step++) {
        char letter = (char)('a' + step);
        first[0] = first[PAGE] = second[0] = second[PAGE] = letter;
        memset(full, letter, sizeof full);
        CHECK(pwrite(holes, full, sizeof full, 0) == sizeof full);
        struct space hole = {.start = 0, .len = 100};
        int made = ioctl(holes, MAKE_HOLE, &hole);
        note("step %d: %c %c %d, hole %d", step, byte_of(by_function, PAGE), byte_of(by_instruction, PAGE), byte_of(holes, 0), made);
        CHECK(byte_of(by_function, 0) == letter && byte_of(by_instruction, 0) == letter);
        sleep_ms(5);
        CHECK(byte_of(by_function, 0) == letter && byte_of(by_instruction, 0) == letter);
    }
    CHECK(munmap(first, 2 * PAGE) == 0 && called(SYS_munmap, (long)second, 2 * PAGE, 0, 0, 0, 0) == 0);
    say("ended");
}
