/* Addresses of code, data, heap, stack, maps and thread stacks: free to differ natively, the same in two Skein runs.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>

static int data = 1;

static void *thread_stack(void *arg)
{
    int here;
    (void)arg;
    note("thread's stack %p, its malloc %p", (void *)&here, malloc(100));
    return NULL;
}

int main(void)
{
    int here;
    void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    note("code %p data %p libc %p", (void *)(uintptr_t)main, (void *)&data, (void *)(uintptr_t)printf);
    note("stack %p map %p brk %p", (void *)&here, map, sbrk(0));
    note("malloc %p %p", malloc(24), malloc(1 << 20));
    for (int i = 0; i < 3; i++)
        join(spawn(thread_stack, NULL));
    say("addresses noted");
    return 0;
}
