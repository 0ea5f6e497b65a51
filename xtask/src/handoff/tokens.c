/* Two processes pass a byte to and fro through two pipes, or a turn through a word of shared memory, so many times each way.
 *
 *     tokens pipe|futex COUNT
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int ends[2][2];
static _Atomic unsigned *word;

static void by_pipe(int me, long count)
{
    char byte = 0;
    for (long i = 0; i < count; i++) {
        if (me == 0 && write(ends[0][1], &byte, 1) != 1)
            _exit(1);
        if (read(ends[1 - me][0], &byte, 1) != 1)
            _exit(1);
        if (me == 1 && write(ends[1][1], &byte, 1) != 1)
            _exit(1);
    }
}

static void by_futex(int me, long count)
{
    for (long i = 0; i < count; i++) {
        while (atomic_load(word) != (unsigned)me)
            syscall(SYS_futex, word, FUTEX_WAIT, 1 - me, NULL, NULL, 0);
        atomic_store(word, 1 - (unsigned)me);
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    void (*pass)(int, long) = strcmp(argv[1], "pipe") == 0 ? by_pipe : by_futex;
    long count = atol(argv[2]);
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED || pipe(ends[0]) != 0 || pipe(ends[1]) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        pass(1, count);
        _exit(0);
    }
    pass(0, count);
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
