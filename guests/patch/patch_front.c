/* Places with nothing behind them that could be moved: the code in front of them is. One of these instructions faults, and is retried.
 * Four of five places are replaced; the other is entered at the instruction itself, too.
 *
 * expect: same
 * net: 4 places, 1500 executions, 600 trapped
 */
#include "patch.h"
#include <ucontext.h>

#define FUNCTION(name, code)                                                                                           \
    long name(long a);                                                                                                 \
    __asm__(".text\n .p2align 4\n .type " #name ", @function\n" #name ":\n .cfi_startproc\n" code                      \
            "\n .cfi_endproc\n .size " #name ", . - " #name "\n")

FUNCTION(parent, "mov $110, %eax\n syscall\n ret");
/* Two instructions, one of which names an address relative to itself. */
FUNCTION(group_of, "mov number(%rip), %rax\n syscall\n ret");
__asm__(".section .rodata\n .p2align 3\nnumber: .quad 121\n .text\n");
FUNCTION(nobody, "push %rdi\n xor %edi, %edi\n xor %edi, %edi\n dec %edi\n mov $121, %al\n movzx %al, %eax\n syscall\n pop %rdi\n ret");
/* The second of the two reads memory. */
FUNCTION(reader, "mov $110, %eax\nfront_here: movl (%rdi), %esi\n syscall\n ret");
extern const char front_here[];
/* Entered at the instruction itself, too: it must stay as it is. */
FUNCTION(either, "mov $110, %eax\n test %rdi, %rdi\n je 1f\n mov $121, %eax\n1: syscall\n ret");

static const unsigned other = 77;
static volatile int handled;

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    CHECK(number == SIGSEGV && info->si_addr == (void *)16);
    CHECK(registers[REG_RIP] == (greg_t)front_here);
    registers[REG_RDI] = (greg_t)&other;
    handled++;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < OFTEN; i++) {
        CHECK(parent(0) == getppid());
        CHECK(group_of(0) == getpgrp());
        CHECK(nobody(0) == -ESRCH);
        CHECK(reader((long)&other) == getppid());
        CHECK(reader(16) == getppid());
        CHECK(either(0) == getppid());
        CHECK(either(getpid()) == getpgid(getpid()));
    }
    CHECK(handled == OFTEN);
    say("five places");
    return 0;
}
