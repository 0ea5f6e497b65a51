/* Faults of other kinds go to the server's handlers, on the alternate stack if requested, with address and cause.
 *
 * expect: same
 */
#include "guest.h"
#include <setjmp.h>
#include <sys/mman.h>

static sigjmp_buf back;
static volatile int number, code;
static void *volatile address;
static char *stack;
static volatile int on_stack;

static void handler(int signo, siginfo_t *info, void *context)
{
    char here;
    ucontext_t *c = context;
    number = signo;
    code = info->si_code;
    address = info->si_addr;
    on_stack = &here >= stack && &here < stack + 65536;
    CHECK(c->uc_mcontext.gregs[REG_RIP] != 0);
    siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = stack, .ss_size = 65536};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(sigaction((int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}[i], &action, NULL) == 0);

    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0)
            *(volatile char *)(page + i) = 1;
        say("%d %d %d", number == SIGSEGV, code == SEGV_ACCERR, address == page + i);
    }
    if (sigsetjmp(back, 1) == 0) {
        volatile int zero = 0;
        number = 1 / zero;
    }
    say("%d %d %d", number == SIGFPE, code == FPE_INTDIV, on_stack);
    if (sigsetjmp(back, 1) == 0)
        __asm__ volatile("ud2");
    say("%d %d", number == SIGILL, code == ILL_ILLOPN);
    if (sigsetjmp(back, 1) == 0)
        __asm__ volatile("int3");
    say("%d", number == SIGTRAP);
    FILE *file = tmpfile();
    CHECK(file != NULL);
    char *hole = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    CHECK(hole != MAP_FAILED);
    if (sigsetjmp(back, 1) == 0)
        number = *(volatile char *)hole;
    say("%d %d", number == SIGBUS, code == BUS_ADRERR);
    return 0;
}
