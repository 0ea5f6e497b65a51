// Has told the kernel much about itself, in two processes, and asks for none of it; answers each line with a number, one more each time, and "slack" with its timer slack.
//
//   opened DIRECTORY PORT

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int must(int result)
{
    if (result < 0)
        _exit(3);
    return result;
}

// With seven bytes in it, of which the next is the fourth.
static int opened(const char *path, int flags)
{
    int fd = must(open(path, flags | O_CREAT | O_RDWR, 0600));
    must(write(fd, "content", 7) == 7 ? 0 : -1);
    must(lseek(fd, 3, SEEK_SET) == 3 ? 0 : -1);
    return fd;
}

static void files(void)
{
    must(dup2(opened("log", 0), 20));
    must(dup2(opened("log", O_APPEND | O_NONBLOCK), 21));
    must(open("log", O_RDONLY | O_CLOEXEC | O_NOATIME));
    opened("removed", 0);
    must(unlink("removed"));
    opened("first", 0);
    must(link("first", "second"));
    must(unlink("first"));
    int nameless = must(open(".", O_TMPFILE | O_RDWR, 0600));
    must(write(nameless, "nameless", 8) == 8 ? 0 : -1);
    int memory = must(memfd_create("memory", 0));
    must(write(memory, "memory", 6) == 6 ? 0 : -1);
    must(open(".", O_RDONLY | O_DIRECTORY));
    must(open("/etc", O_PATH));
    must(open("/dev/zero", O_RDONLY));
    // Numbers of the runtime's.
    int ends[2];
    must(pipe(ends));
}

static void locks(void)
{
    must(flock(opened("whole", 0), LOCK_EX));
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 10};
    must(fcntl(opened("part", 0), F_SETLK, &part));
    part.l_type = F_RDLCK;
    must(fcntl(opened("of-file", 0), F_OFD_SETLK, &part));
}

static void other(void)
{
    umask(077);
    prctl(PR_SET_NAME, "other");
    struct rlimit limit = {100, 1000};
    must(setrlimit(RLIMIT_NOFILE, &limit));
    must(mkdir("root", 0755));
    must(chroot("root"));
    must(chdir("/"));
    must(close(20));
    opened("inside", 0);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    must(chdir(argv[1]));
    umask(027);
    struct rlimit limit = {500, 2000};
    must(setrlimit(RLIMIT_NOFILE, &limit));
    files();
    locks();
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 16))
        return 1;
    if (must(fork()) == 0)
        other();
    printf("ready\n");
    fflush(stdout);
    for (long number = 0;;) {
        int client = accept(listening, NULL, NULL);
        if (client < 0)
            return 1;
        char line[64];
        while (read(client, line, sizeof line) > 0)
            dprintf(client, "%ld\n", line[0] == 's' ? (long)prctl(PR_GET_TIMERSLACK) : ++number);
        close(client);
    }
}
