/* An instruction leaves the same state alone when it is replaced: registers, flags, the bytes below the stack pointer, vectors.
 * Two or four places more where the processor has AVX and AVX-512.
 *
 * expect: same
 * net: 6 places, 1200 executions
 */
#include "patch.h"
#include <cpuid.h>
#include <immintrin.h>

/* rax rbx rcx rdx rsi rdi rbp r8 to r15, flags. */
uint64_t given[16], found[16];
uint64_t below_given[16], below_found[16], stack_before, stack_after;
unsigned char vectors_given[32][64] __attribute__((aligned(64))), vectors_found[32][64] __attribute__((aligned(64)));
uint64_t masks_given[8], masks_found[8];

#define EACH_BELOW(X)                                                                                                  \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define FILL(n) "mov below_given+8*" #n "(%rip), %rax\n mov %rax, -128+8*" #n "(%rsp)\n"
#define TAKE(n) "mov -128+8*" #n "(%rsp), %rax\n mov %rax, below_found+8*" #n "(%rip)\n"

/* Executes an instruction between loading all registers and storing them. The next instruction is a store relative to itself. */
#define PROBE(name, instruction, load, store)                                                                          \
    void name(void);                                                                                                   \
    __asm__(".text\n .p2align 4\n .type " #name ", @function\n" #name ":\n .cfi_startproc\n"                           \
            "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n" load                             \
            "mov %rsp, stack_before(%rip)\n push given+120(%rip)\n popfq\n" EACH_BELOW(FILL)                           \
            "mov given(%rip), %rax\n mov given+8(%rip), %rbx\n mov given+16(%rip), %rcx\n mov given+24(%rip), %rdx\n"  \
            "mov given+32(%rip), %rsi\n mov given+40(%rip), %rdi\n mov given+48(%rip), %rbp\n"                         \
            "mov given+56(%rip), %r8\n mov given+64(%rip), %r9\n mov given+72(%rip), %r10\n"                           \
            "mov given+80(%rip), %r11\n mov given+88(%rip), %r12\n mov given+96(%rip), %r13\n"                         \
            "mov given+104(%rip), %r14\n mov given+112(%rip), %r15\n" instruction "\n"                                 \
            "mov %rax, found(%rip)\n mov %rsp, stack_after(%rip)\n mov %rbx, found+8(%rip)\n"                          \
            "mov %rcx, found+16(%rip)\n mov %rdx, found+24(%rip)\n mov %rsi, found+32(%rip)\n"                         \
            "mov %rdi, found+40(%rip)\n mov %rbp, found+48(%rip)\n mov %r8, found+56(%rip)\n"                          \
            "mov %r9, found+64(%rip)\n mov %r10, found+72(%rip)\n mov %r11, found+80(%rip)\n"                          \
            "mov %r12, found+88(%rip)\n mov %r13, found+96(%rip)\n mov %r14, found+104(%rip)\n"                        \
            "mov %r15, found+112(%rip)\n" EACH_BELOW(TAKE) "pushfq\n popq found+120(%rip)\n cld\n" store               \
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n .cfi_endproc\n .size " #name      \
            ", . - " #name "\n")

#define EACH_16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH_UPPER(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define EACH_MASK(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define LOAD_X(n) "movups vectors_given+64*" #n "(%rip), %xmm" #n "\n"
#define STORE_X(n) "movups %xmm" #n ", vectors_found+64*" #n "(%rip)\n"
#define LOAD_Y(n) "vmovups vectors_given+64*" #n "(%rip), %ymm" #n "\n"
#define STORE_Y(n) "vmovups %ymm" #n ", vectors_found+64*" #n "(%rip)\n"
#define LOAD_Z(n) "vmovups vectors_given+64*" #n "(%rip), %zmm" #n "\n"
#define STORE_Z(n) "vmovups %zmm" #n ", vectors_found+64*" #n "(%rip)\n"
#define LOAD_K(n) "kmovw masks_given+8*" #n "(%rip), %k" #n "\n"
#define STORE_K(n) "kmovw %k" #n ", masks_found+8*" #n "(%rip)\n"
#define ALL_Z(X) EACH_16(X) EACH_UPPER(X)

PROBE(call_x, "syscall", EACH_16(LOAD_X), EACH_16(STORE_X));
PROBE(stamp_x, "rdtsc", EACH_16(LOAD_X), EACH_16(STORE_X));
PROBE(stamp_p_x, "rdtscp", EACH_16(LOAD_X), EACH_16(STORE_X));
PROBE(call_y, "syscall", EACH_16(LOAD_Y), EACH_16(STORE_Y) "vzeroupper\n");
PROBE(stamp_y, "rdtsc", EACH_16(LOAD_Y), EACH_16(STORE_Y) "vzeroupper\n");
PROBE(call_z, "syscall", ALL_Z(LOAD_Z), ALL_Z(STORE_Z) "vzeroupper\n");
void masks_load(void), masks_store(void);
__asm__(".text\nmasks_load:\n .cfi_startproc\n" EACH_MASK(LOAD_K) "ret\n .cfi_endproc\nmasks_store:\n .cfi_startproc\n"
        EACH_MASK(STORE_K) "ret\n .cfi_endproc\n");

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS };

/* Carry, parity, adjust, zero, sign, direction, overflow, and the bit that is always set; interrupts are on. */
#define SOME_FLAGS 0x8d5
#define DIRECTION 0x400
#define ALWAYS 0x202

static uint64_t seed = 1;

static uint64_t next(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed;
}

static void probe(void (*body)(void), long number, int vectors, size_t bytes)
{
    for (int round = 0; round < OFTEN; round++) {
        for (int i = 0; i < FLAGS; i++)
            given[i] = next();
        if (number >= 0)
            given[RAX] = (uint64_t)number;
        given[FLAGS] = (next() & (SOME_FLAGS | DIRECTION)) | ALWAYS;
        for (int i = 0; i < 16; i++)
            below_given[i] = next();
        for (size_t i = 0; i < sizeof vectors_given; i++)
            ((unsigned char *)vectors_given)[i] = (unsigned char)(next() >> 40);
        for (int i = 0; i < 8; i++)
            masks_given[i] = next() & 0xffff;
        if (vectors == 32)
            masks_load();
        body();
        if (vectors == 32)
            masks_store();
        CHECK(stack_before == stack_after);
        for (int i = RBX; i < FLAGS; i++)
            if (i != RCX && i != RDX && i != R11)
                CHECK(found[i] == given[i]);
        if (number >= 0) {
            CHECK(found[RDX] == given[RDX]);
            /* The processor leaves the flags in r11. */
            CHECK(found[R11] == given[FLAGS]);
            CHECK((long)found[RAX] == (number == SYS_getppid ? (long)getppid() : (long)getpid()));
        } else {
            CHECK(found[R11] == given[R11] && found[RAX] >> 32 == 0 && found[RDX] >> 32 == 0);
            CHECK(body == stamp_p_x || found[RCX] == given[RCX]);
        }
        CHECK(found[FLAGS] == given[FLAGS]);
        CHECK(memcmp(below_given, below_found, sizeof below_given) == 0);
        for (int i = 0; i < vectors; i++)
            CHECK(memcmp(vectors_given[i], vectors_found[i], bytes) == 0);
        if (vectors == 32)
            CHECK(memcmp(masks_given + 1, masks_found + 1, sizeof masks_given - 8) == 0);
    }
}

int main(void)
{
    long calls[] = {SYS_getppid, SYS_getpid};
    for (size_t i = 0; i < 2; i++)
        probe(call_x, calls[i], 16, 16);
    probe(stamp_x, -1, 16, 16);
    probe(stamp_p_x, -1, 16, 16);
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx")) {
        probe(call_y, SYS_getppid, 16, 32);
        probe(stamp_y, -1, 16, 32);
    }
    if (__builtin_cpu_supports("avx512f"))
        probe(call_z, SYS_getppid, 32, 64);
    say("all as it was");
    return 0;
}
