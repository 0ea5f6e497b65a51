/* Lock-free code: compare-and-swap stack and ticket counters by five threads; the result order is the schedule's.
 *
 * expect: same
 */
#include "guest.h"
#include <stdatomic.h>

struct node {
    struct node *next;
    int value;
};

static _Atomic(struct node *) head;
static atomic_int tickets;
static struct node nodes[5][100];
static int drawn[500];

static void *push(void *arg)
{
    for (int i = 0; i < 100; i++) {
        struct node *node = &nodes[(long)arg][i];
        node->value = (int)(long)arg * 100 + i;
        node->next = atomic_load(&head);
        while (!atomic_compare_exchange_weak(&head, &node->next, node))
            ;
        drawn[atomic_fetch_add(&tickets, 1)] = node->value;
        if (i % 20 == 0)
            sched_yield();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[5];
    for (long i = 0; i < 5; i++)
        threads[i] = spawn(push, (void *)i);
    for (int i = 0; i < 5; i++)
        join(threads[i]);
    long sum = 0, count = 0;
    uint64_t order = 0;
    for (struct node *node = atomic_load(&head); node; node = node->next) {
        sum += node->value;
        count++;
        order = order * 31 + (uint64_t)node->value;
    }
    for (int i = 0; i < 500; i++)
        order = order * 31 + (uint64_t)drawn[i];
    say("%ld nodes, sum %ld", count, sum);
    note("order %016llx", (unsigned long long)order);
    return 0;
}
