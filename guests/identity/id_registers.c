/* Registers that a function may overwrite have the same values on all replicas when a call that the runtime answers returns and when a thread and a handler of signals
 * begin, whether the replica waited meanwhile or continues from an image: a program may save them all, as the JVM does, and has them in its memory then.
 *
 * expect: same
 */
#include "guest.h"

enum { STEPS = 12, BYTES = 2304 + 64 };

struct stored { unsigned char bytes[BYTES]; } __attribute__((aligned(64)));

int wide;
struct stored kept, at_handler;

/* Stores the vector registers at rdi. */
__asm__("store:\n"
        "movups %xmm0, (%rdi)\n movups %xmm1, 16(%rdi)\n movups %xmm2, 32(%rdi)\n movups %xmm3, 48(%rdi)\n"
        "movups %xmm4, 64(%rdi)\n movups %xmm5, 80(%rdi)\n movups %xmm6, 96(%rdi)\n movups %xmm7, 112(%rdi)\n"
        "movups %xmm8, 128(%rdi)\n movups %xmm9, 144(%rdi)\n movups %xmm10, 160(%rdi)\n movups %xmm11, 176(%rdi)\n"
        "movups %xmm12, 192(%rdi)\n movups %xmm13, 208(%rdi)\n movups %xmm14, 224(%rdi)\n movups %xmm15, 240(%rdi)\n"
        "cmpl $0, wide(%rip)\n"
        "je 1f\n"
        "vmovdqu64 %zmm16, 256(%rdi)\n vmovdqu64 %zmm17, 320(%rdi)\n vmovdqu64 %zmm18, 384(%rdi)\n vmovdqu64 %zmm19, 448(%rdi)\n"
        "vmovdqu64 %zmm20, 512(%rdi)\n vmovdqu64 %zmm21, 576(%rdi)\n vmovdqu64 %zmm22, 640(%rdi)\n vmovdqu64 %zmm23, 704(%rdi)\n"
        "vmovdqu64 %zmm24, 768(%rdi)\n vmovdqu64 %zmm25, 832(%rdi)\n vmovdqu64 %zmm26, 896(%rdi)\n vmovdqu64 %zmm27, 960(%rdi)\n"
        "vmovdqu64 %zmm28, 1024(%rdi)\n vmovdqu64 %zmm29, 1088(%rdi)\n vmovdqu64 %zmm30, 1152(%rdi)\n vmovdqu64 %zmm31, 1216(%rdi)\n"
        "vmovdqu64 %zmm0, 1344(%rdi)\n vmovdqu64 %zmm1, 1408(%rdi)\n vmovdqu64 %zmm2, 1472(%rdi)\n vmovdqu64 %zmm3, 1536(%rdi)\n"
        "vmovdqu64 %zmm4, 1600(%rdi)\n vmovdqu64 %zmm5, 1664(%rdi)\n vmovdqu64 %zmm6, 1728(%rdi)\n vmovdqu64 %zmm7, 1792(%rdi)\n"
        "vmovdqu64 %zmm8, 1856(%rdi)\n vmovdqu64 %zmm9, 1920(%rdi)\n vmovdqu64 %zmm10, 1984(%rdi)\n vmovdqu64 %zmm11, 2048(%rdi)\n"
        "vmovdqu64 %zmm12, 2112(%rdi)\n vmovdqu64 %zmm13, 2176(%rdi)\n vmovdqu64 %zmm14, 2240(%rdi)\n vmovdqu64 %zmm15, 2304(%rdi)\n"
        "kmovq %k0, 1280(%rdi)\n kmovq %k1, 1288(%rdi)\n kmovq %k2, 1296(%rdi)\n kmovq %k3, 1304(%rdi)\n"
        "kmovq %k4, 1312(%rdi)\n kmovq %k5, 1320(%rdi)\n kmovq %k6, 1328(%rdi)\n kmovq %k7, 1336(%rdi)\n"
        "1: ret\n");

/* Fills the registers with a number, calls, and stores them. */
long called(void *function, long a, long b, long number);
__asm__(".globl called\n"
        "called:\n"
        "push %rbx\n"
        "movq %rcx, %xmm0\n"
        "movaps %xmm0, %xmm1\n movaps %xmm0, %xmm2\n movaps %xmm0, %xmm3\n movaps %xmm0, %xmm4\n movaps %xmm0, %xmm5\n"
        "movaps %xmm0, %xmm6\n movaps %xmm0, %xmm7\n movaps %xmm0, %xmm8\n movaps %xmm0, %xmm9\n movaps %xmm0, %xmm10\n"
        "movaps %xmm0, %xmm11\n movaps %xmm0, %xmm12\n movaps %xmm0, %xmm13\n movaps %xmm0, %xmm14\n movaps %xmm0, %xmm15\n"
        "cmpl $0, wide(%rip)\n"
        "je 1f\n"
        "vpbroadcastq %rcx, %zmm16\n vpbroadcastq %rcx, %zmm23\n vpbroadcastq %rcx, %zmm31\n"
        "vpbroadcastq %rcx, %zmm3\n vpbroadcastq %rcx, %zmm9\n"
        "kmovq %rcx, %k1\n kmovq %rcx, %k4\n kmovq %rcx, %k7\n"
        "1:\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "call *%rax\n"
        "mov %rax, %rbx\n"
        "lea kept(%rip), %rdi\n"
        "call store\n"
        "mov %rbx, %rax\n"
        "pop %rbx\n"
        "ret\n"
        /* Their values when they begin. */
        ".globl thread_begins\n"
        "thread_begins:\n"
        "call store\n"
        "xor %eax, %eax\n"
        "ret\n"
        ".globl handler_begins\n"
        "handler_begins:\n"
        "lea at_handler(%rip), %rdi\n"
        "jmp store\n");
void *thread_begins(void *);
void handler_begins(int);

static void show(const char *what, int n, const struct stored *s)
{
    uint64_t sum = 14695981039346656037ULL;
    for (int i = 0; i < BYTES; i++)
        sum = (sum ^ s->bytes[i]) * 1099511628211ULL;
    note("%s %d: %016llx", what, n, (unsigned long long)sum);
}

/* Exceptions of floating-point arithmetic stay noted while a call waits: those of x87, here of a division by zero. */
static void divide(void)
{
    volatile long double one = 1, zero = 0, result;
    unsigned short status;
    __asm__ volatile("fnclex");
    result = one / zero;
    CHECK(result > one);
    usleep(1000);
    __asm__ volatile("fnstsw %0" : "=a"(status));
    CHECK((status & 4) != 0);
}

int main(void)
{
    wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    struct sigaction action = {.sa_handler = handler_begins};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    static struct stored at_thread;
    for (int n = 0; n < STEPS; n++) {
        CHECK(called(usleep, 1000, 0, n + 1) == 0);
        show("sleep", n, &kept);
        divide();
        CHECK(called(sched_yield, 0, 0, n + 1) == 0);
        show("yield", n, &kept);
        CHECK(called(raise, SIGUSR1, 0, n + 1) == 0);
        show("raise", n, &kept);
        show("handler", n, &at_handler);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, thread_begins, &at_thread) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        show("thread", n, &at_thread);
    }
    say("%d times", STEPS);
    return 0;
}
