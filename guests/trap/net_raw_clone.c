/* A thread by an inline clone: around pthread_create, so it has no place in the schedule.
 *
 * expect: same
 * or fatal: clone
 */
#include "raw.h"
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/mman.h>

static volatile int tid_word = 1;
static volatile int ran;

/* clone whose child runs on `stack`, stores 1 in `ran` and exits, all without libc. */
static long clone_thread(void *stack)
{
    long result;
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    register long r10 __asm__("r10") = (long)&tid_word;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "movl $1, %[ran]\n\t"
                     "xor %%edi, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n\t"
                     "1:"
                     : "=a"(result), [ran] "+m"(ran)
                     : "a"(SYS_clone), "D"(flags), "S"(stack), "d"(0), "r"(r10), "r"(r8), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
}

int main(void)
{
    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    say("before");
    fflush(stdout);
    CHECK(clone_thread(stack + 65536) > 0);
    while (tid_word != 0)
        raw6(SYS_futex, (long)&tid_word, FUTEX_WAIT, 1, 0, 0, 0);
    CHECK(ran == 1);
    say("a thread by inline clone");
    return 0;
}
