/* Places that must not be replaced: a jump leads behind them, or the code behind them cannot be moved. They keep trapping, and are right.
 *
 * expect: same
 * net: 1200 trapped
 */
#include "patch.h"

/* Each answers 7, or the sum that is added to the time stamp counter read twice: 3. */
#define FUNCTION(name, code)                                                                                           \
    long name(long way);                                                                                               \
    __asm__(".text\n .p2align 4\n .type " #name ", @function\n" #name ":\n .cfi_startproc\n" code                      \
            "\n .cfi_endproc\n .size " #name ", . - " #name "\n")

/* A short jump to the instruction behind. */
FUNCTION(by_jump, "mov $7, %eax\n xor %edx, %edx\n test %rdi, %rdi\n je 1f\n rdtsc\n1: xor %edx, %edx\n test %rdi, %rdi\n"
                  " je 2f\n mov $3, %eax\n2: ret");
/* A jump from a part of the function that lies elsewhere. */
FUNCTION(by_far_jump, "mov $7, %eax\n test %rdi, %rdi\n je far_part\n rdtsc\nfar_back: nop\n nop\n nop\n test %rdi, %rdi\n"
                      " je 2f\n mov $3, %eax\n2: ret");
__asm__(".section .text.unlikely, \"ax\", @progbits\n .cfi_startproc\nfar_part: nop\n jmp far_back\n .cfi_endproc\n .text\n");
/* A table of distances, as compilers make it for a switch. */
FUNCTION(by_table, "mov $7, %eax\n lea table(%rip), %rcx\n movslq (%rcx,%rdi,4), %rdx\n add %rcx, %rdx\n jmp *%rdx\n"
                   "table_read: rdtsc\ntable_back: nop\n nop\n nop\n test %rdi, %rdi\n je 2f\n mov $3, %eax\n2: ret");
__asm__(".section .rodata\n .p2align 2\ntable: .long table_back - table, table_read - table\n .text\n");
/* Nothing that could be moved: the function ends. */
FUNCTION(then_return, "mov $7, %eax\n test %rdi, %rdi\n je 1f\n call just_read\n mov $3, %eax\n1: ret");
FUNCTION(just_read, "rdtsc\n ret\n .cfi_endproc\n .cfi_startproc\njust_behind: nop\n nop\n nop\n ret");

int main(void)
{
    long (*functions[])(long) = {by_jump, by_far_jump, by_table, then_return};
    for (int round = 0; round < OFTEN; round++)
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
            CHECK(functions[i](1) == 3);
            CHECK(functions[i](0) == 7);
        }
    say("four places");
    return 0;
}
