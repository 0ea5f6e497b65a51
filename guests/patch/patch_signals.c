/* Places in signal handlers; a handler that runs inside a call from a place and uses it, too, or jumps away; a fault of an instruction that was moved.
 *
 * expect: same
 * net: 4 places, 2100 executions
 */
#include "patch.h"
#include <setjmp.h>
#include <ucontext.h>

static volatile int handled;
static sigjmp_buf away;

static void handler(int number)
{
    uint64_t before = stamp();
    CHECK(call(SYS_getppid, 0, 0, 0, 0) == getppid());
    CHECK(stamp() >= before);
    handled++;
    if (number == SIGUSR2)
        siglongjmp(away, 1);
}

/* rdtsc; mov (%rdi), %esi; and what was read. */
unsigned read_behind(const unsigned *from);
__asm__(".text\n .p2align 4\n .type read_behind, @function\nread_behind:\n .cfi_startproc\n rdtsc\n"
        "fault_here: movl (%rdi), %esi\n nop\n movl %esi, %eax\n ret\n .cfi_endproc\n .size read_behind, . - read_behind\n");
extern const char fault_here[];

static const unsigned other = 77;

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    CHECK(number == SIGSEGV && info->si_addr == (void *)16);
    CHECK(registers[REG_RIP] == (greg_t)fault_here);
    registers[REG_RDI] = (greg_t)&other;
    handled++;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    unsigned mine = 5;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    for (int i = 0; i < OFTEN; i++)
        CHECK(call(SYS_kill, getpid(), SIGUSR1, 0, 0) == 0);
    CHECK(handled == OFTEN);
    for (volatile int i = 0; i < OFTEN; i++)
        if (sigsetjmp(away, 1) == 0) {
            call(SYS_kill, getpid(), SIGUSR2, 0, 0);
            CHECK(0);
        }
    CHECK(handled == 2 * OFTEN);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < OFTEN; i++) {
        CHECK(read_behind(&mine) == mine);
        CHECK(read_behind((const unsigned *)16) == other);
    }
    CHECK(handled == 3 * OFTEN);
    say("handled");
    return 0;
}
