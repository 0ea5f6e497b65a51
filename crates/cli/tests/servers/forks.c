// Forks for each connection, and there for each line again: `add WORD` is answered by a process of its own, which stores the word in a file that all
// share and answers `ok NUMBER`; `all` answers all words. Each of these processes writes over a part of the memory that it has from its parent.
//
//   forks PORT

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 1 << 20, PAGE = 4096 };

static char memory[MEMORY];
static unsigned long *count;

static void all(FILE *to)
{
    char word[256];
    FILE *words = fopen("words", "r");
    for (const char *space = ""; words && fscanf(words, "%255s", word) == 1; space = " ")
        fprintf(to, "%s%s", space, word);
    if (words)
        fclose(words);
    fputc('\n', to);
}

static void answer(char *line, FILE *to)
{
    line[strcspn(line, "\r\n")] = 0;
    if (strcmp(line, "all") == 0) {
        all(to);
    } else if (strncmp(line, "add ", 4) == 0) {
        unsigned long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
        for (unsigned long at = number % 16; at < MEMORY / PAGE; at += 16)
            memory[at * PAGE + number % PAGE] = (char)number;
        int words = open("words", O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (words < 0 || dprintf(words, "%s\n", line + 4) < 0)
            _exit(1);
        fprintf(to, "ok %lu %d\n", number, (int)getpid());
    } else {
        fprintf(to, "what?\n");
    }
    fflush(to);
}

static void serve(int connection)
{
    char line[256];
    FILE *from = fdopen(connection, "r"), *to = fdopen(dup(connection), "w");
    while (from && to && fgets(line, sizeof line, from)) {
        pid_t child = fork();
        if (child == 0) {
            answer(line, to);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            _exit(1);
        memory[(unsigned)child % MEMORY]++;
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    count = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (count == MAP_FAILED || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0)
        return 1;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (connection < 0)
            continue;
        if (fork() == 0) {
            close(listener);
            serve(connection);
        }
        close(connection);
    }
}
