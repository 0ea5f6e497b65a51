/* Blocking pipe between threads: 1 MiB through it, then four writers whose small records stay whole.
 *
 * expect: same
 */
#include "guest.h"

enum { TOTAL = 1 << 20, RECORDS = 200 };

static int p[2];

static void *bulk(void *arg)
{
    static unsigned char data[TOTAL];
    (void)arg;
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (unsigned char)(i % 251);
    CHECK(write(p[1], data, TOTAL) == TOTAL);
    return NULL;
}

static void *records(void *arg)
{
    char record[101];
    memset(record, 'A' + (int)(long)arg, sizeof record);
    for (int i = 0; i < RECORDS; i++)
        CHECK(write(p[1], record, sizeof record) == sizeof record);
    return NULL;
}

int main(void)
{
    CHECK(pipe(p) == 0);
    pthread_t thread = spawn(bulk, NULL), writers[4];
    static unsigned char buffer[3001];
    size_t total = 0;
    while (total < TOTAL) {
        size_t want = TOTAL - total < sizeof buffer ? TOTAL - total : sizeof buffer;
        ssize_t n = read(p[0], buffer, want);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            CHECK(buffer[i] == (total + (size_t)i) % 251);
        total += (size_t)n;
    }
    join(thread);
    say("%zu bytes in order", total);

    int counts[4] = {0};
    uint64_t order = 0;
    for (long i = 0; i < 4; i++)
        writers[i] = spawn(records, (void *)i);
    for (int i = 0; i < 4 * RECORDS; i++) {
        char record[101];
        read_exact(p[0], record, sizeof record);
        for (size_t k = 1; k < sizeof record; k++)
            CHECK(record[k] == record[0]);
        counts[record[0] - 'A']++;
        order = order * 1099511628211u + (unsigned char)record[0];
    }
    for (int i = 0; i < 4; i++) {
        join(writers[i]);
        say("writer %d: %d whole records", i, counts[i]);
    }
    note("order %016llx", (unsigned long long)order);
    return 0;
}
