/* Randomness: getrandom, getentropy, /dev/urandom and /dev/random by open and fopen, arc4random, AT_RANDOM, rand by time.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/auxv.h>
#include <sys/random.h>

/* The bytes go to standard error: the same in two Skein runs. They must not be all the same either. */
static void show(const char *what, const unsigned char *bytes, size_t length)
{
    char text[65];
    int varied = 0;
    for (size_t i = 0; i < length; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        varied |= bytes[i] != bytes[0];
    }
    CHECK(varied);
    note("%s %s", what, text);
    say("%s: %zu bytes", what, length);
}

int main(void)
{
    unsigned char a[32], b[32];
    CHECK(getrandom(a, sizeof a, 0) == sizeof a);
    CHECK(getrandom(b, sizeof b, GRND_NONBLOCK) == sizeof b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    show("getrandom", a, sizeof a);
    show("getrandom nonblock", b, sizeof b);
    CHECK(getentropy(a, sizeof a) == 0);
    CHECK(memcmp(a, b, sizeof a) != 0);
    show("getentropy", a, sizeof a);
    static unsigned char large[257];
    CHECK_ERRNO(getentropy(large, sizeof large), EIO);
    CHECK_ERRNO(getrandom(a, 1, 0x100), EINVAL);

    static const char *paths[] = {"/dev/urandom", "/dev/random"};
    for (int i = 0; i < 2; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 3);
        CHECK(read(fd, a, sizeof a) == sizeof a);
        CHECK(read(fd, b, sizeof b) == sizeof b);
        CHECK(memcmp(a, b, sizeof a) != 0);
        CHECK(close(fd) == 0);
        show(paths[i], a, sizeof a);
        fd = openat(AT_FDCWD, paths[i], O_RDONLY);
        CHECK(fd >= 3 && read(fd, a, sizeof a) == sizeof a && close(fd) == 0);
        show("openat", a, sizeof a);
        FILE *file = fopen(paths[i], "rb");
        CHECK(file != NULL && fread(a, 1, sizeof a, file) == sizeof a);
        CHECK(fclose(file) == 0);
        show("fopen", a, sizeof a);
    }

    arc4random_buf(a, sizeof a);
    show("arc4random_buf", a, sizeof a);
    unsigned number = arc4random();
    note("arc4random %u, uniform %u", number, arc4random_uniform(1000));
    CHECK(arc4random_uniform(10) < 10);
    const unsigned char *at_random = (const unsigned char *)getauxval(AT_RANDOM);
    CHECK(at_random != NULL);
    show("AT_RANDOM", at_random, 16);
    srand((unsigned)time(NULL) ^ (unsigned)getpid());
    note("rand %d", rand());
    return 0;
}
