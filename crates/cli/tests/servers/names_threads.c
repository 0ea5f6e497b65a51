/* Looks names up for clients, a thread a connection, by libc's own resolver and one name server on loopback.
 *
 *     look NAME     ok ADDRESS, or failed and why
 *
 *     names_threads PORT NAME_SERVER_PORT
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <resolv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint16_t name_server;

static void look(FILE *out, const char *name)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(name, NULL, &hints, &list);
    if (rc != 0) {
        fprintf(out, "failed %s\n", gai_strerror(rc));
        return;
    }
    struct sockaddr_in *found = (struct sockaddr_in *)list->ai_addr;
    fprintf(out, "ok %s\n", inet_ntoa(found->sin_addr));
    freeaddrinfo(list);
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    char line[300];
    /* As a line "nameserver 127.0.0.1" says it, but for the port: 53 is root's. The resolver's state is each thread's own. */
    if (in == NULL || out == NULL || res_init() != 0)
        exit(1);
    _res.nscount = 1;
    _res.nsaddr_list[0] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(name_server)};
    _res.nsaddr_list[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    _res.retrans = 1;
    _res.retry = 3;
    while (fgets(line, sizeof line, in) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "look ", 5) == 0)
            look(out, line + 5);
        else
            fprintf(out, "failed to understand\n");
        if (fflush(out) != 0)
            break;
    }
    fclose(in);
    fclose(out);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    name_server = (uint16_t)atoi(argv[2]);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 128) != 0)
        return 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        if (fd >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0)
            pthread_detach(thread);
    }
}
