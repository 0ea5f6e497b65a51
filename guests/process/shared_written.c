/* Processes write to memory that they share, all the time: in turn, and as it comes and goes. Short-lived ones write and end; it gets holes, is mapped twice, moves, and is
 * unmapped; memory of one process alone takes its place.
 *
 * expect: same
 */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE 4096
#define PAGES 300
#define WORKERS 2
#define OWN (PAGES / (WORKERS + 1))
#define ROUNDS 60

static unsigned char *shared;
/* The first of the pages that this process writes to: with others' the sum would follow their order. */
static unsigned own;

static unsigned next(unsigned *state)
{
    return (*state = *state * 1103515245 + 12345) >> 8;
}

static void write_some(unsigned *state, int count)
{
    for (int i = 0; i < count; i++) {
        unsigned char *page = shared + (own + next(state) % OWN) * PAGE;
        switch (next(state) % 8) {
        case 0:
            memset(page, 0, PAGE);
            break;
        case 1:
            memset(page, (int)next(state), PAGE);
            break;
        default:
            page[next(state) % PAGE] += 1 + next(state) % 3;
        }
    }
}

static unsigned sum(const unsigned char *from, size_t bytes)
{
    unsigned all = 0;
    for (size_t i = 0; i < bytes; i++)
        all = all * 31 + from[i];
    return all;
}

static pid_t begin(unsigned first, unsigned seed, int rounds)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    own = first;
    for (int i = 0; i < rounds; i++) {
        write_some(&seed, 12);
        sleep_ms(1);
    }
    _exit(0);
}

static void await(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
    unsigned state = 7;
    shared = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t workers[WORKERS];
    for (int n = 0; n < WORKERS; n++)
        workers[n] = begin(n * OWN, n + 1, ROUNDS);
    own = WORKERS * OWN;
    for (int round = 0; round < ROUNDS; round++) {
        write_some(&state, 10);
        unsigned char *at = shared + (own + next(&state) % (OWN - 4)) * PAGE;
        switch (round % 8) {
        case 1:
            /* It writes, and is gone. */
            await(begin(own, state, 1));
            break;
        case 3: {
            CHECK(madvise(at, 3 * PAGE, MADV_REMOVE) == 0);
            CHECK(at[5] == 0);
            break;
        }
        case 4:
            CHECK(madvise(at, 3 * PAGE, MADV_DONTNEED) == 0);
            break;
        case 5: {
            /* Written where it is mapped for a moment. */
            unsigned char *twice = mremap(at, 0, 4 * PAGE, MREMAP_MAYMOVE);
            CHECK(twice != MAP_FAILED);
            for (int i = 0; i < 4; i++)
                twice[i * PAGE + round]++;
            CHECK(munmap(twice, 4 * PAGE) == 0);
            break;
        }
        case 6: {
            /* Memory of this process alone lies where it lay. */
            unsigned char *moved = mremap(shared, PAGES * PAGE, PAGES * PAGE,
                                          MREMAP_MAYMOVE | MREMAP_FIXED, (char *)shared + (1 << 24));
            CHECK(moved != MAP_FAILED);
            unsigned char *alone = mmap(shared, PAGES * PAGE, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            CHECK(alone == shared);
            for (int i = 0; i < PAGES; i += 7)
                alone[i * PAGE] = (unsigned char)i;
            sleep_ms(1);
            for (int i = 0; i < PAGES; i += 5)
                alone[i * PAGE]++;
            sleep_ms(1);
            moved[own * PAGE + round]++;
            CHECK(mremap(moved, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, alone) == alone);
            break;
        }
        default:
            break;
        }
        sleep_ms(1);
    }
    for (int n = 0; n < WORKERS; n++)
        await(workers[n]);
    printf("%u\n", sum(shared, PAGES * PAGE));
    return 0;
}
