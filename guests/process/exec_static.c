/* A statically linked program cannot be executed: refused by name. (Natively it runs.)
 *
 * expect: same
 * refused: statically linked
 */
#include "guest.h"
#include <elf.h>
#include <sys/stat.h>
#include <sys/wait.h>

int main(void)
{
    char path[64] = "./exec_static.XXXXXX";
    /* exit(7) */
    static const unsigned char code[] = {0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr load;
        unsigned char code[sizeof code];
    } image = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_EXEC,
                 .e_machine = EM_X86_64,
                 .e_version = EV_CURRENT,
                 .e_entry = 0x400000 + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
                 .e_phoff = sizeof(Elf64_Ehdr),
                 .e_ehsize = sizeof(Elf64_Ehdr),
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_phnum = 1},
        .load = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = 0x400000, .p_paddr = 0x400000,
                 .p_filesz = sizeof image, .p_memsz = sizeof image, .p_align = 4096},
    };
    memcpy(image.code, code, sizeof code);
    int fd = mkstemp(path), status;
    CHECK(fd >= 0);
    write_all(fd, &image, sizeof image);
    CHECK(fchmod(fd, 0755) == 0 && close(fd) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(path, path, (char *)NULL);
        _exit(errno == ENOEXEC ? 8 : 9);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7 || WEXITSTATUS(status) == 8);
    CHECK(unlink(path) == 0);
    say("done");
    return 0;
}
