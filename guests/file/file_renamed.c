/* Files whose name is removed while they have another one, known by descriptors and mappings from before: what is written there is in the file of that name, also after a restore.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { BYTES = 40960, ROUNDS = 60 };

/* A mapping of one that never had another name, and of one that was linked; a descriptor of each; one that is only looked at; one that is mapped twice. */
enum { MAPPED_NAMELESS, MAPPED, OPEN_NAMELESS, OPEN, SEEN, BOTH, FILES };

static char directory[] = "/mnt/renamed-XXXXXX";

static const char *name(int n, int generation)
{
    static char names[2][64];
    static int which;
    char *one = names[which ^= 1];
    snprintf(one, sizeof names[0], "%s/%d.%d", directory, n, generation);
    return one;
}

static int nameless(int n)
{
    char link[64];
    int fd = open(directory, O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, link, AT_FDCWD, name(n, 0), AT_SYMLINK_FOLLOW) == 0);
    return fd;
}

static int linked(int n, int access)
{
    int made = open(name(n, -1), O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(made >= 0 && ftruncate(made, BYTES) == 0 && close(made) == 0);
    int fd = open(name(n, -1), access);
    CHECK(fd >= 0);
    CHECK(link(name(n, -1), name(n, 0)) == 0 && unlink(name(n, -1)) == 0);
    return fd;
}

static unsigned char *mapped(int fd, int protection)
{
    unsigned char *at = mmap(NULL, BYTES, protection, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED && close(fd) == 0);
    return at;
}

static uint32_t hash_of(int n, int generation)
{
    static unsigned char bytes[BYTES];
    int fd = open(name(n, generation), O_RDONLY);
    CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) == BYTES && close(fd) == 0);
    uint32_t h = 2166136261u;
    for (int i = 0; i < BYTES; i++)
        h = (h ^ bytes[i]) * 16777619u;
    return h;
}

int main(void)
{
    CHECK(mkdtemp(directory) != NULL);
    unsigned char *first = mapped(nameless(MAPPED_NAMELESS), PROT_READ | PROT_WRITE);
    unsigned char *second = mapped(linked(MAPPED, O_RDWR), PROT_READ | PROT_WRITE);
    int third = nameless(OPEN_NAMELESS), fourth = linked(OPEN, O_RDWR);
    unsigned char *fifth = mapped(linked(SEEN, O_RDONLY), PROT_READ);
    /* Later mappings are below: the shared one is met first. */
    int sixth = linked(BOTH, O_RDWR);
    unsigned char *own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, sixth, 0);
    CHECK(own != MAP_FAILED);
    own[0] = 99;
    unsigned char *both = mapped(sixth, PROT_READ | PROT_WRITE);
    CHECK(lseek(fourth, BYTES / 2, SEEK_SET) == BYTES / 2);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char byte = (unsigned char)(round + 1);
        first[round * 601] = byte;
        second[round * 499] = byte;
        CHECK(pwrite(third, &byte, 1, round * 401) == 1);
        CHECK(write(fourth, &byte, 1) == 1);
        int fd = open(name(SEEN, round / 20), O_WRONLY);
        CHECK(fd >= 0 && pwrite(fd, &byte, 1, round) == 1 && close(fd) == 0);
        CHECK(fifth[round] == byte);
        both[BYTES / 2 + round] = byte;
        CHECK(own[0] == 99 && own[BYTES / 2 + round] == byte);
        for (int n = 0; n < FILES; n++)
            say("%d: %08x", n, hash_of(n, round / 20));
        if (round % 20 == 19)
            for (int n = 0; n < FILES; n++)
                CHECK(rename(name(n, round / 20), name(n, round / 20 + 1)) == 0);
        usleep(1000);
    }
    for (int n = 0; n < FILES; n++)
        CHECK(unlink(name(n, ROUNDS / 20)) == 0);
    CHECK(rmdir(directory) == 0);
    return 0;
}
