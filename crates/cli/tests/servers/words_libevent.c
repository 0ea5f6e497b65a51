/* Words that clients add, kept by libevent: one loop, buffered events, a timer that counts, a second thread that wakes the loop.
 *
 *     add WORD      ok COUNT TICKS
 *     all           the words in the order in which they came, in one line
 *
 *     words_libevent PORT
 */
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct event_base *base;
static struct evbuffer *words;
static unsigned long count, ticks, nudges;

static void on_line(struct bufferevent *client, const char *line)
{
    struct evbuffer *out = bufferevent_get_output(client);
    if (strncmp(line, "add ", 4) == 0) {
        evbuffer_add_printf(words, "%s%s", count == 0 ? "" : " ", line + 4);
        evbuffer_add_printf(out, "ok %lu %lu %lu\n", ++count, ticks, nudges);
    } else if (strcmp(line, "all") == 0) {
        size_t length = evbuffer_get_length(words);
        evbuffer_add(out, evbuffer_pullup(words, -1), length);
        evbuffer_add(out, "\n", 1);
    } else {
        evbuffer_add(out, "what?\n", 6);
    }
}

static void on_read(struct bufferevent *client, void *unused)
{
    (void)unused;
    char *line;
    while ((line = evbuffer_readln(bufferevent_get_input(client), NULL, EVBUFFER_EOL_LF)) != NULL) {
        on_line(client, line);
        free(line);
    }
}

static void on_event(struct bufferevent *client, short events, void *unused)
{
    (void)unused;
    if (events & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT))
        bufferevent_free(client);
}

static void on_client(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int length, void *unused)
{
    (void)listener, (void)from, (void)length, (void)unused;
    struct bufferevent *client = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    const struct timeval idle = {600, 0};
    bufferevent_setcb(client, on_read, NULL, on_event, NULL);
    bufferevent_set_timeouts(client, &idle, NULL);
    bufferevent_enable(client, EV_READ | EV_WRITE);
}

static void on_tick(evutil_socket_t fd, short events, void *unused)
{
    (void)fd, (void)events, (void)unused;
    ticks++;
}

static void on_nudge(evutil_socket_t fd, short events, void *unused)
{
    (void)fd, (void)events, (void)unused;
    nudges++;
}

/* Wakes the loop from another thread, as a pool of workers would. */
static void *nudge(void *event)
{
    const struct timespec pause = {0, 50 * 1000 * 1000};
    for (;;) {
        nanosleep(&pause, NULL);
        event_active(event, EV_READ, 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval period = {0, 20 * 1000};
    pthread_t nudger;
    address.sin_port = htons((unsigned short)(argc > 1 ? atoi(argv[1]) : 0));
    evthread_use_pthreads();
    base = event_base_new();
    words = evbuffer_new();
    if (evconnlistener_new_bind(base, on_client, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, -1,
            (struct sockaddr *)&address, sizeof address)
        == NULL) {
        perror("words_libevent");
        return 1;
    }
    event_add(event_new(base, -1, EV_PERSIST, on_tick, NULL), &period);
    if (pthread_create(&nudger, NULL, nudge, event_new(base, -1, 0, on_nudge, NULL)) != 0)
        return 1;
    return event_base_dispatch(base);
}
