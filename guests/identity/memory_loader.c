/* Records of the dynamic loader: files of libraries are those that stat reports, for libraries that came with the program and later ones; and all that it has written,
 * times by the processor's counter and the core's number among it, is the same on all replicas, in a program that is executed, too.
 *
 * expect: same
 */
#include "guest.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>

/* Whether its file's device and inode number are in the record. */
static int has_numbers(const struct link_map *map)
{
    struct stat st;
    CHECK(stat(map->l_name, &st) == 0);
    for (size_t at = sizeof *map; at < 1024; at += 8) {
        uint64_t pair[2];
        memcpy(pair, (const char *)map + at, sizeof pair);
        if (pair[0] == st.st_dev && pair[1] == st.st_ino)
            return 1;
    }
    return 0;
}

static int hash_loader(struct dl_phdr_info *info, size_t size, void *sum)
{
    (void)size;
    if (info->dlpi_addr != getauxval(AT_BASE))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const unsigned char *bytes = (const unsigned char *)(info->dlpi_addr + header->p_vaddr);
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W))
            for (size_t at = 0; at < header->p_memsz; at++)
                *(uint64_t *)sum = (*(uint64_t *)sum ^ bytes[at]) * 1099511628211ULL;
    }
    return 0;
}

static void show(const char *who)
{
    uint64_t sum = 14695981039346656037ULL;
    dl_iterate_phdr(hash_loader, &sum);
    note("%s: the loader's memory %016llx", who, (unsigned long long)sum);
    int known = 0;
    for (struct link_map *map = _r_debug.r_map; map; map = map->l_next)
        if (strstr(map->l_name, "libc.so")) {
            CHECK(has_numbers(map));
            known = 1;
        }
    CHECK(known);
    struct link_map *later = dlopen("libutil.so.1", RTLD_LAZY);
    CHECK(later && has_numbers(later));
    /* The same file by another name is the same library. */
    char other[] = "/proc/self/cwd/other.so";
    unlink("other.so");
    CHECK(symlink(later->l_name, "other.so") == 0);
    CHECK(dlopen(other, RTLD_LAZY) == later);
    say("%s: libraries are the files that they are", who);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    show(argc > 1 ? argv[1] : "first");
    if (argc > 1)
        return 0;
    char *args[] = {argv[0], "executed", NULL};
    execv("/proc/self/exe", args);
    CHECK(!"executed");
}
