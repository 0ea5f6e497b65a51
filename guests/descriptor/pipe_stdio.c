/* stdio over virtual descriptors: fdopen, fprintf, fgets, fclose on pipes and sockets, between two threads.
 *
 * expect: same
 */
#include "guest.h"

static void *writer(void *arg)
{
    FILE *out = fdopen(*(int *)arg, "w");
    CHECK(out != NULL);
    setvbuf(out, NULL, _IOLBF, 0);
    for (int i = 0; i < 3; i++)
        CHECK(fprintf(out, "line %d\n", i) > 0);
    CHECK(fclose(out) == 0);
    return NULL;
}

int main(void)
{
    for (int kind = 0; kind < 2; kind++) {
        int fds[2];
        char line[64];
        if (kind)
            tcp_pair(fds);
        else
            CHECK(pipe(fds) == 0);
        pthread_t thread = spawn(writer, &fds[1]);
        FILE *in = fdopen(fds[0], "r");
        CHECK(in != NULL);
        while (fgets(line, sizeof line, in))
            printf("%s: %s", kind ? "socket" : "pipe", line);
        CHECK(feof(in));
        CHECK(fclose(in) == 0);
        join(thread);
    }
    return 0;
}
