/* Files that are written to in every way there is, a little at a time: an image has what is in them, and not what was there before.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { FILES = 3, WAYS = 17, ROUNDS = 4 * WAYS, MOST = 1 << 20 };

static char directory[] = "/mnt/rewritten-XXXXXX";
static char bytes[1 << 16];
static uint64_t state = 88172645463325252u;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 33) % n);
}

static const char *name(unsigned n)
{
    static char names[2][64];
    static int which;
    char *one = names[which ^= 1];
    snprintf(one, sizeof names[0], "%s/%u", directory, n);
    return one;
}

static int opened(unsigned n, int flags)
{
    int fd = open(name(n), flags | O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    return fd;
}

static size_t some(size_t most)
{
    size_t len = 1 + below(below(3) ? (uint32_t)most : 300);
    memset(bytes, 'a' + (int)below(26), len);
    return len;
}

static off_t size_of(int fd)
{
    struct stat about;
    CHECK(fstat(fd, &about) == 0);
    return about.st_size;
}

static off_t place(int fd)
{
    return (off_t)below((uint32_t)size_of(fd) + 5000);
}

static void whole(const char *call, ssize_t done, size_t len)
{
    if (done != (ssize_t)len)
        say("%s: %zd of %zu", call, done, len);
}

/* One change: few of them between two images, so that none hides what another should have told. */
static void act(int way)
{
    unsigned n = below(FILES);
    size_t len = some(sizeof bytes);
    int fd = opened(n, way == 1 || way == 3 || way == 4 ? O_APPEND : way == 9 && !below(3) ? O_TRUNC : 0);
    struct iovec parts[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
    if (size_of(fd) > MOST)
        CHECK(ftruncate(fd, 5000) == 0);
    switch (way) {
    case 0:
        CHECK(lseek(fd, place(fd), SEEK_SET) >= 0);
        whole("write", write(fd, bytes, len), len);
        break;
    case 1:
        whole("append", write(fd, bytes, len), len);
        break;
    case 2:
        whole("pwrite", pwrite(fd, bytes, len, place(fd)), len);
        break;
    case 3:
        /* Linux puts it at the end. */
        whole("pwrite, appending", pwrite(fd, bytes, len, 0), len);
        break;
    case 4:
        whole("pwritev2, not appending", pwritev2(fd, parts, 2, place(fd), 0), len);
        break;
    case 5:
        whole("pwritev2, appending", pwritev2(fd, parts, 2, 0, RWF_APPEND), len);
        break;
    case 6:
        CHECK(lseek(fd, place(fd), SEEK_SET) >= 0);
        whole("writev", writev(fd, parts, 2), len);
        break;
    case 7:
        whole("pwritev", pwritev(fd, parts, 2, place(fd)), len);
        break;
    case 8:
        CHECK(ftruncate(fd, place(fd)) == 0);
        break;
    case 9:
        break;
    case 10:
        CHECK(fallocate(fd, 0, place(fd), (off_t)len) == 0);
        break;
    case 11:
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place(fd), (off_t)len) == 0);
        break;
    case 12: {
        /* Only one file is ever mapped: it is read whole from then on. */
        int mapped = opened(FILES, 0);
        CHECK(ftruncate(mapped, 40960) == 0);
        char *at = mmap(NULL, 40960, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
        CHECK(at != MAP_FAILED);
        at[below(40960)] = (char)('a' + below(26));
        /* Written to later, through what a child of this one still has. */
        CHECK(close(mapped) == 0);
        at[below(40960)]++;
        if (below(2))
            CHECK(munmap(at, 40960) == 0);
        break;
    }
    case 13: {
        int from = opened(below(FILES), 0);
        off_t to = place(fd);
        ssize_t moved = below(2) ? copy_file_range(from, &(off_t){0}, fd, &to, len, 0) : -1;
        if (moved < 0) {
            CHECK(lseek(fd, place(fd), SEEK_SET) >= 0);
            moved = sendfile(fd, from, &(off_t){0}, len);
        }
        CHECK(moved >= 0 || errno == EINVAL);
        CHECK(close(from) == 0);
        break;
    }
    case 14: {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (pwrite(fd, bytes, len, place(fd)) != (ssize_t)len || write(fd, "child", 5) != 5)
                _exit(1);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        break;
    }
    case 15:
        CHECK(rename(name(n), name(below(FILES))) == 0);
        break;
    case 16:
        CHECK(truncate(name(n), place(fd)) == 0);
        CHECK(below(4) || unlink(name(n)) == 0);
        whole("write to what is gone", write(fd, bytes, len), len);
        break;
    }
    CHECK(close(fd) == 0);
}

static uint32_t hash_of(unsigned n)
{
    int fd = opened(n, 0);
    uint32_t h = 2166136261u;
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            h = (h ^ (unsigned char)bytes[i]) * 16777619u;
    CHECK(close(fd) == 0);
    return h;
}

int main(void)
{
    CHECK(mkdtemp(directory) != NULL);
    for (unsigned n = 0; n < FILES; n++) {
        int fd = opened(n, 0);
        for (int i = 0; i < 4; i++)
            whole("write", write(fd, bytes, 50000), 50000);
        CHECK(close(fd) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        /* Those that change the size are far from those that append. */
        act(round * 7 % WAYS);
        usleep(1000);
    }
    for (unsigned n = 0; n <= FILES; n++) {
        say("%u: %08x", n, hash_of(n));
        CHECK(unlink(name(n)) == 0);
    }
    CHECK(rmdir(directory) == 0);
    return 0;
}
