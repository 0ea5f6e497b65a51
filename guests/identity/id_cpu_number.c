/* The number of the current processor: by getcpu, sched_getcpu, and the area that libc shares with the kernel (rseq), in the main
 * thread and in another one. Equal on replicas, which share no processor.
 *
 * expect: same
 */
#define _GNU_SOURCE
#include "raw.h"
#include <sched.h>
#include <sys/rseq.h>

static void *look(void *name)
{
    const struct rseq *area = (const void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    /* More than one look, so that a replica that is moved between processors is found. */
    for (int i = 0; i < 200; i++) {
        unsigned cpu = 99, node = 99;
        CHECK(getcpu(&cpu, &node) == 0 && sched_getcpu() >= 0);
        if (i % 50 == 0)
            note("%s: getcpu %u %u, sched_getcpu %d, rseq %d", (char *)name, cpu, node, sched_getcpu(), (int)area->cpu_id);
        sched_yield();
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    look("main");
    CHECK(pthread_create(&thread, NULL, look, "thread") == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* Registering an area of its own would show the number, too. */
    static struct rseq own __attribute__((aligned(32)));
    long result = raw6(SYS_rseq, (long)&own, sizeof own, 0, 0x53053053, 0, 0);
    note("rseq: %ld, %d", result, (int)own.cpu_id);
    say("asked for the processor's number");
    return 0;
}
