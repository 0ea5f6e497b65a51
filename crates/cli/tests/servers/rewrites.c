// Holds memory in which no two pages are the same, and rewrites much of it for each request, from what was there: half of the rows of pages again and again, of the others a few pages once.
// Some of it is in many mappings of less than 1 MiB.
//
//   rewrites PORT
//
//   write N   the number goes into these pages
//   sum       a sum of all words

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t) };
enum { MANY = 32, SMALL_PAGES = 128, LARGE_PAGES = 4096, STILL_PAGES = 2048 };
enum { REWRITTEN = MANY * SMALL_PAGES + LARGE_PAGES, ALL = REWRITTEN + STILL_PAGES };
// So often pages are rewritten for a request, in rows of so many; the other rows have turns.
enum { PASSES = 4, ROW = 16, TURNS = 64 };

static uint64_t *pages[ALL];

static uint64_t *mapped(size_t count)
{
    uint64_t *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(1);
    return at;
}

static void add(size_t page, uint64_t value)
{
    for (size_t word = 0; word < WORDS; word++)
        pages[page][word] = pages[page][word] * 31 + value;
}

static void map(void)
{
    size_t page = 0;
    // A page that nobody may touch keeps each mapping apart from the next one.
    for (size_t n = 0; n < MANY; n++) {
        uint64_t *at = mapped(SMALL_PAGES + 1);
        if (mprotect(at + SMALL_PAGES * WORDS, PAGE, PROT_NONE) != 0)
            exit(1);
        for (size_t of = 0; of < SMALL_PAGES; of++)
            pages[page++] = at + of * WORDS;
    }
    uint64_t *large = mapped(LARGE_PAGES), *still = mapped(STILL_PAGES);
    for (size_t of = 0; of < LARGE_PAGES; of++)
        pages[page++] = large + of * WORDS;
    for (size_t of = 0; of < STILL_PAGES; of++)
        pages[page++] = still + of * WORDS;
    for (page = 0; page < ALL; page++)
        add(page, page);
}

static void rewrite(uint64_t value)
{
    for (size_t pass = 0; pass < PASSES; pass++)
        for (size_t page = 0; page < REWRITTEN; page++)
            if (page / ROW % 2 == 0 || (pass == value % PASSES && page * 7 % TURNS == value % TURNS))
                add(page, value);
}

static uint64_t sum(void)
{
    uint64_t sum = 0;
    for (size_t page = 0; page < ALL; page++)
        for (size_t word = 0; word < WORDS; word++)
            sum = sum * 31 + pages[page][word];
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    map();
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0)
        return 1;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        char line[256];
        FILE *from = fdopen(connection, "r"), *to = fdopen(dup(connection), "w");
        while (from && to && fgets(line, sizeof line, from)) {
            unsigned long value;
            if (sscanf(line, "write %lu", &value) == 1) {
                rewrite(value);
                fprintf(to, "%lu\n", value);
            } else {
                fprintf(to, "%016llx\n", (unsigned long long)sum());
            }
            fflush(to);
        }
        if (from)
            fclose(from);
        if (to)
            fclose(to);
    }
}
