/* The memory below the stack pointer is the program's: calls that the runtime answers leave nothing there but a return address, whether they come by a
 * symbol, by a trapped instruction or by a replaced one, block or not; binding a function at its first call leaves the memory as the call did; and the traces of
 * a signal handler are the same on all replicas. Natively libc's functions use their stack, and only the first part holds.
 *
 * expect: same
 */
#include "guest.h"
#include <link.h>
#include <poll.h>
#include <sys/syscall.h>

enum { BYTES = 64 << 10 };

static int by_runtime;
unsigned char copy[BYTES];

/* Fills the memory below with a pattern, calls, and copies the result. */
long called(void *function, long a, long b, long c);
__asm__(".globl called\n"
        "called:\n"
        "push %rbx\n"
        "push %r12\n"
        "push %r13\n"
        "push %r14\n"
        "push %r15\n"
        "mov %rdi, %rbx\n"
        "mov %rsi, %r12\n"
        "mov %rdx, %r13\n"
        "mov %rcx, %r14\n"
        "lea -65536(%rsp), %rdi\n"
        "mov $65536, %ecx\n"
        "mov $0xa5, %eax\n"
        "rep stosb\n"
        "mov %r12, %rdi\n"
        "mov %r13, %rsi\n"
        "mov %r14, %rdx\n"
        "xor %r10d, %r10d\n"
        "call *%rbx\n"
        "mov %rax, %r15\n"
        "lea -65536(%rsp), %rsi\n"
        "lea copy(%rip), %rdi\n"
        "mov $65536, %ecx\n"
        "rep movsb\n"
        "mov %r15, %rax\n"
        "pop %r15\n"
        "pop %r14\n"
        "pop %r13\n"
        "pop %r12\n"
        "pop %rbx\n"
        "ret\n"
        /* Entry paths that use no stack themselves. */
        "by_syscall:\n"
        "mov $35, %eax\n" /* nanosleep */
        "syscall\n"
        "ret\n"
        "by_rdtsc:\n"
        "rdtsc\n"
        "nop\n"
        "nop\n"
        "nop\n"
        "ret\n"
        "by_binding:\n"
        "jmp llabs@PLT\n");
extern char by_syscall[], by_rdtsc[], by_binding[];

/* The number of bytes below the stack pointer that changed. */
static long touched(void)
{
    long at = 0;
    while (at < BYTES && copy[at] == 0xa5)
        at++;
    return BYTES - at;
}

static void expect(const char *what, long most)
{
    if (by_runtime && touched() > most) {
        note("%s: %ld bytes were touched, not %ld", what, touched(), most);
        CHECK(!"nothing is left below the stack pointer");
    }
    say("%s", what);
}

static uint64_t hash(void)
{
    uint64_t sum = 14695981039346656037ULL;
    for (int at = 0; at < BYTES; at++)
        sum = (sum ^ copy[at]) * 1099511628211ULL;
    return sum;
}

static volatile int handled;

static void handler(int number)
{
    handled = number;
}

static int is_skein(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    *(int *)found |= strstr(info->dlpi_name, "libskein") != NULL;
    return 0;
}

static void *writes_later(void *pipe)
{
    usleep(1000);
    CHECK(write(*(int *)pipe, "x", 1) == 1);
    return NULL;
}

int main(void)
{
    dl_iterate_phdr(is_skein, &by_runtime);
    struct timespec time, little = {0, 1000};
    char byte;
    int ends[2];
    CHECK(pipe(ends) == 0);

    CHECK(called(clock_gettime, CLOCK_MONOTONIC, (long)&time, 0) == 0);
    expect("a clock", 8);
    CHECK(called(nanosleep, (long)&little, 0, 0) == 0);
    expect("a sleep", 8);
    CHECK(called(write, ends[1], (long)"y", 1) == 1);
    expect("a write", 8);
    CHECK(called(read, ends[0], (long)&byte, 1) == 1 && byte == 'y');
    expect("a read", 8);
    pthread_t thread = spawn(writes_later, &ends[1]);
    CHECK(called(read, ends[0], (long)&byte, 1) == 1 && byte == 'x');
    expect("a read that waits", 8);
    join(thread);

    /* Trapped at first, replaced later. */
    for (int i = 0; i < 100; i++) {
        /* Below the red zone: the address where a stub continues, and three registers; the address where a trap continues. */
        const long most = 8 + 128 + 8 + 3 * 8;
        CHECK(called(by_syscall, (long)&little, 0, 0) == 0);
        CHECK(!by_runtime || touched() <= most);
        called(by_rdtsc, 0, 0, 0);
        CHECK(!by_runtime || touched() <= most);
    }
    say("instructions");

    /* The vector registers are in use on one replica, perhaps not on another. */
    CHECK(called(by_binding, -5, 0, 0) == 5);
    expect("binding a function", 8 + 16);

    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(called(raise, SIGUSR1, 0, 0) == 0);
    CHECK(handled == SIGUSR1);
    if (by_runtime)
        note("a handler of a signal leaves %ld bytes: %016llx", touched(), (unsigned long long)hash());
    say("a handler of a signal");
    return 0;
}
