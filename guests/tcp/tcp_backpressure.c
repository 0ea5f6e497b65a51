/* A blocking writer of 8 MiB against a reader that starts late and reads in odd pieces.
 *
 * expect: same
 */
#include "guest.h"

enum { TOTAL = 8 << 20 };

static void *writer(void *arg)
{
    int fd = *(int *)arg;
    unsigned char *data = malloc(TOTAL);
    CHECK(data != NULL);
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
    ssize_t n = write(fd, data, TOTAL);
    CHECK(n == TOTAL); /* A blocking write takes all. */
    CHECK(shutdown(fd, SHUT_WR) == 0);
    free(data);
    return NULL;
}

int main(void)
{
    int p[2];
    tcp_pair(p);
    pthread_t thread = spawn(writer, &p[0]);
    static unsigned char buffer[40001];
    size_t total = 0;
    ssize_t n;
    sleep_ms(20);
    while ((n = read(p[1], buffer, 1 + (total * 13) % sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            CHECK(buffer[i] == (unsigned char)((total + (size_t)i) * 31 >> 3));
        total += (size_t)n;
    }
    CHECK(n == 0);
    join(thread);
    say("%zu bytes in order", total);
    return 0;
}
