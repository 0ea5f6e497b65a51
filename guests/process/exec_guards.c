/* The loader's use of AT_RANDOM before anything else runs: stack protector and pointer guard, in this program and in one that it executes,
 * and the loader's traces below the stack pointer of an executed one.
 *
 * expect: same
 */
#include "guest.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/wait.h>

static uint64_t word_at(int offset)
{
    uint64_t value;
    if (offset == 0x28)
        __asm__ volatile("mov %%fs:0x28, %0" : "=r"(value));
    else
        __asm__ volatile("mov %%fs:0x30, %0" : "=r"(value));
    return value;
}

static void *guards_of_thread(void *arg)
{
    uint64_t *guards = arg;
    guards[0] = word_at(0x28);
    guards[1] = word_at(0x30);
    return NULL;
}

/* The memory below, which this program has not written yet. */
static __attribute__((noinline)) uint64_t left_below(void)
{
    volatile char *here = __builtin_frame_address(0);
    uint64_t sum = 14695981039346656037ULL;
    for (int at = 512; at < 40000; at++)
        sum = (sum ^ (unsigned char)here[-at]) * 1099511628211ULL;
    return sum;
}

static __attribute__((noinline, optimize("stack-protector-all"))) int protected_frame(const char *text)
{
    char copy[64];
    strcpy(copy, text);
    __asm__ volatile("" : : "r"(copy) : "memory");
    return (int)strlen(copy);
}

static void at_end(void)
{
    say("atexit");
    fflush(stdout);
}

static jmp_buf back;

static void show(const char *who)
{
    uint64_t random[2], thread[2];
    memcpy(random, (void *)getauxval(AT_RANDOM), sizeof random);
    CHECK(word_at(0x28) == (random[0] & ~0xffULL));
    CHECK(word_at(0x30) == random[1]);
    note("%s: stack protector %016llx, pointer guard %016llx", who, (unsigned long long)word_at(0x28),
         (unsigned long long)word_at(0x30));
    join(spawn(guards_of_thread, thread));
    CHECK(thread[0] == word_at(0x28) && thread[1] == word_at(0x30));
    CHECK(protected_frame(who) == (int)strlen(who));
    CHECK(atexit(at_end) == 0);
    if (setjmp(back) == 0)
        longjmp(back, 1);
    CHECK(dlopen("/nowhere/at/all.so", RTLD_NOW) == NULL);
    say("%s: the guards are of AT_RANDOM", who);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        note("%s: below the stack %016llx", argv[1], (unsigned long long)left_below());
        show(argv[1]);
        return 0;
    }
    /* Below the first one's stack lie traces of the runtime's start: on one replica it had to wait, on another not. */
    show("first");
    char *args[] = {argv[0], "executed by a child", NULL};
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execv("/proc/self/exe", args);
        CHECK(!"executed");
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    args[1] = "executed";
    execv("/proc/self/exe", args);
    CHECK(!"executed");
}
