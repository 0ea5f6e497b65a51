/* A virtual descriptor as standard input and output: dup2 over 0 and 1 and back, as daemons do.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    int p[2], saved_out = dup(1), saved_in = dup(0);
    char line[64];
    CHECK(pipe(p) == 0);
    fflush(stdout);
    CHECK(dup2(p[1], 1) == 1);
    CHECK(close(p[1]) == 0);
    printf("through the pipe\n");
    fflush(stdout);
    CHECK(dup2(saved_out, 1) == 1);
    CHECK(dup2(p[0], 0) == 0);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    CHECK(dup2(saved_in, 0) == 0);
    printf("got back: %s", line);
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0 && dup2(null, p[0]) == p[0]);
    char byte;
    CHECK(read(p[0], &byte, 1) == 0);
    say("a file replaced the pipe");
    return 0;
}
