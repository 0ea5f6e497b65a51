/* /proc/self/stat and statm, by descriptor and as a stream, have as many fields as on Linux. A test with redis' INFO shows that replicas
 * that answer with them stay identical (crates/cli/tests/real_determinism.rs).
 *
 * expect: same
 */
#include "guest.h"

static int fields(const char *text)
{
    int n = 1;
    for (; *text; text++)
        n += *text == ' ';
    return n;
}

int main(void)
{
    char path[64], text[1024] = {0}, more[1024] = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getpid());
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t len = read(fd, text, sizeof text - 1);
    CHECK(len > 0 && text[len - 1] == '\n' && read(fd, more, 1) == 0 && close(fd) == 0);
    say("%d fields, of this process %d", fields(text), atoi(text) == (int)getpid());
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fgets(more, sizeof more, file) && fclose(file) == 0);
    say("statm has %d fields", fields(more));
    return 0;
}
