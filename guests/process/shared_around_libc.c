/* A process writes to memory that it shares where it maps it a second time for a moment, by instructions of its own. An image has what was written.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 300, ROUNDS = 40, TIMES = 300 };

/* By its instruction, as a program without libc does. */
static long called(long number, void *a, long b, long c, long d, long e)
{
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
    return number;
}

static unsigned sum(const unsigned char *from, size_t bytes)
{
    unsigned all = 0;
    for (size_t i = 0; i < bytes; i++)
        all = all * 31 + from[i];
    return all;
}

int main(void)
{
    unsigned char *shared = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    memset(shared, 1, PAGES * PAGE);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int round = 0; round < ROUNDS; round++) {
            shared[round * PAGE]++;
            sleep_ms(1);
        }
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int time = 0; time < TIMES; time++) {
            unsigned char *at = shared + (PAGES / 2 + (round + time) % (PAGES / 2)) * PAGE;
            unsigned char *twice = (unsigned char *)called(SYS_mremap, at, 0, PAGE, MREMAP_MAYMOVE, 0);
            CHECK((long)twice > 0);
            twice[time]++;
            CHECK(called(SYS_munmap, twice, PAGE, 0, 0, 0) == 0);
        }
        sleep_ms(1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    say("%u", sum(shared, PAGES * PAGE));
    return 0;
}
