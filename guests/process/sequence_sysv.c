/* Random sequences of calls on System V message queues and sets of semaphores, one thread, nothing blocks: keys that are free, taken or private, messages by their
 * types in every way, several operations at once, undoing, values, limits, settings, and objects that were removed. Linux and Skein answer alike:
 * results, errors, bytes and counts. Identifiers have the names of their places in a table.
 *
 * expect: same
 * sequences: 5000
 */
#include "sequence.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

#define OBJECTS 6
#define LONGEST 400

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

/* Identifiers, some of objects that were removed; 0: nothing yet. */
static struct object {
    int used, id;
} queues[OBJECTS], sets[OBJECTS];

static struct {
    long type;
    char text[LONGEST + 8800];
} message;

/* The place of an identifier; a new one takes a place that is free, or a chosen one whose object is removed. */
static int place_of(struct object *table, int id, int is_queue)
{
    int place = (int)below(OBJECTS);
    for (int i = 0; i < OBJECTS; i++)
        if (table[i].used && table[i].id == id)
            return i;
    for (int i = OBJECTS - 1; i >= 0; i--)
        if (!table[i].used)
            place = i;
    if (table[place].used)
        is_queue ? msgctl(table[place].id, IPC_RMID, NULL) : semctl(table[place].id, 0, IPC_RMID);
    table[place] = (struct object){.used = 1, .id = id};
    return place;
}

static const struct object *some_object(const struct object *table)
{
    const struct object *o = &table[below(OBJECTS)];
    return o->used ? o : &table[0];
}

static int some_flags(void)
{
    static const int flags[] = {IPC_CREAT | 0600, IPC_CREAT | 0640, IPC_CREAT | IPC_EXCL | 0600, 0, 0600};
    return ONE_OF(flags);
}

static key_t some_key(void)
{
    static const key_t keys[] = {IPC_PRIVATE, 0x51, 0x52, 0x53};
    return ONE_OF(keys);
}

static void get_queue(void)
{
    key_t key = some_key();
    int flags = some_flags(), id = msgget(key, flags);
    tell(id < 0 ? -1 : place_of(queues, id, 1), "msgget %x %o", (unsigned)key, (unsigned)flags);
}

static void get_set(void)
{
    key_t key = some_key();
    int flags = some_flags(), n = (int)below(6) - (below(8) == 0), id = semget(key, n, flags);
    tell(id < 0 ? -1 : place_of(sets, id, 0), "semget %x, %d, %o", (unsigned)key, n, (unsigned)flags);
}

static void send_message(const struct object *q)
{
    static const long types[] = {1, 1, 2, 3, 4, 5, 0, -1};
    size_t n = below(12) ? below(LONGEST) : 8190 + below(5);
    message.type = ONE_OF(types);
    for (size_t i = 0; i < n; i++)
        message.text[i] = (char)below(256);
    long rc = msgsnd(q->id, &message, n, IPC_NOWAIT);
    tell(rc, "msgsnd %d, type %ld, %zu", (int)(q - queues), message.type, n);
}

static void receive_message(const struct object *q)
{
    static const long types[] = {0, 0, 1, 2, 3, 4, -1, -2, -3, -4, -100};
    static const int all_flags[] = {0, 0, MSG_NOERROR, MSG_NOERROR, MSG_EXCEPT, MSG_EXCEPT | MSG_NOERROR};
    long type = ONE_OF(types);
    int flags = ONE_OF(all_flags);
    size_t n = below(3) ? LONGEST : below(LONGEST);
    memset(&message, 0, sizeof message);
    ssize_t got = msgrcv(q->id, &message, n, type, flags | IPC_NOWAIT);
    tell(got, "msgrcv %d, type %ld, %zu, %o", (int)(q - queues), type, n, (unsigned)flags);
    if (got >= 0)
        say("  %ld %08x", message.type, hash(message.text, got));
}

static void ask_queue(const struct object *q)
{
    struct msqid_ds state;
    long rc = msgctl(q->id, IPC_STAT, &state);
    tell(rc, "msgctl %d stat", (int)(q - queues));
    if (rc != 0)
        return;
    say("  %lu messages, %lu bytes of %lu, mode %o, key %x, owner %u, sent by %d, received by %d, at %d %d",
        (unsigned long)state.msg_qnum, (unsigned long)state.__msg_cbytes, (unsigned long)state.msg_qbytes,
        (unsigned)state.msg_perm.mode, (unsigned)state.msg_perm.__key, (unsigned)state.msg_perm.uid, state.msg_lspid == getpid(),
        state.msg_lrpid == getpid(), state.msg_stime != 0, state.msg_rtime != 0);
    if (below(2)) {
        state.msg_qbytes = below(3) ? 200 + below(2000) : 16384;
        state.msg_perm.mode = below(2) ? 0600 : 0666;
        tell(msgctl(q->id, IPC_SET, &state), "msgctl %d set %lu", (int)(q - queues), (unsigned long)state.msg_qbytes);
    }
}

static void operate(const struct object *s)
{
    struct sembuf ops[3];
    size_t n = below(8) ? 1 + below(3) : 0;
    char text[120] = "";
    for (size_t i = 0; i < n; i++) {
        ops[i].sem_num = (unsigned short)(below(10) ? below(3) : below(6));
        ops[i].sem_op = (short)((int)below(8) - 4);
        if (below(20) == 0)
            ops[i].sem_op = 32767;
        ops[i].sem_flg = (short)(IPC_NOWAIT | (below(6) ? 0 : SEM_UNDO));
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d %d %o", ops[i].sem_num, ops[i].sem_op,
                 (unsigned)ops[i].sem_flg);
    }
    struct timespec none = {0, 0};
    long rc = below(3) ? semop(s->id, ops, n) : semtimedop(s->id, ops, n, &none);
    tell(rc, "semop %d,%s", (int)(s - sets), text);
}

static void control(const struct object *s)
{
    static const struct {
        const char *name;
        int command;
    } commands[] = {{"GETVAL", GETVAL}, {"GETPID", GETPID}, {"GETNCNT", GETNCNT}, {"GETZCNT", GETZCNT}};
    int place = (int)(s - sets), n = (int)below(6) - (below(10) == 0), which = (int)below(4);
    unsigned short all[8] = {0};
    struct semid_ds state;
    union semun arg = {.val = 0};
    long rc;
    switch (below(5)) {
    case 0:
        arg.val = below(6) ? (int)below(5) : 32766 + (int)below(3);
        if (below(12) == 0)
            arg.val = -1;
        tell(semctl(s->id, n, SETVAL, arg), "SETVAL %d %d, %d", place, n, arg.val);
        break;
    case 1:
        arg.array = all;
        for (int i = 0; i < 8; i++)
            all[i] = (unsigned short)(below(30) ? below(4) : 32768);
        tell(semctl(s->id, 0, SETALL, arg), "SETALL %d, %08x", place, hash(all, sizeof all));
        break;
    case 2:
        arg.array = all;
        tell(semctl(s->id, 0, GETALL, arg), "GETALL %d", place);
        say("  %d %d %d %d %d", all[0], all[1], all[2], all[3], all[4]);
        break;
    case 3:
        arg.buf = &state;
        rc = semctl(s->id, 0, IPC_STAT, arg);
        tell(rc, "semctl %d stat", place);
        if (rc == 0)
            say("  %lu semaphores, mode %o, key %x, operated %d", (unsigned long)state.sem_nsems,
                (unsigned)state.sem_perm.mode, (unsigned)state.sem_perm.__key, state.sem_otime != 0);
        break;
    default:
        rc = semctl(s->id, n, commands[which].command, arg);
        tell(which == 1 && rc > 0 ? rc == getpid() : rc, "%s %d %d", commands[which].name, place, n);
        break;
    }
}

static void act(void)
{
    const struct object *q = some_object(queues), *s = some_object(sets);
    switch (below(24)) {
    case 0:
    case 1:
        get_queue();
        break;
    case 2:
    case 3:
        get_set();
        break;
    case 4:
        if (q->used && below(2))
            tell(msgctl(q->id, IPC_RMID, NULL), "msgctl %d remove", (int)(q - queues));
        break;
    case 5:
        if (s->used && below(2))
            tell(semctl(s->id, 0, IPC_RMID), "semctl %d remove", (int)(s - sets));
        break;
    case 6:
    case 7:
        if (q->used)
            ask_queue(q);
        break;
    case 8:
    case 9:
    case 10:
    case 11:
        if (q->used)
            send_message(q);
        break;
    case 12:
    case 13:
    case 14:
    case 15:
        if (q->used)
            receive_message(q);
        break;
    case 16:
    case 17:
    case 18:
        if (s->used)
            control(s);
        break;
    default:
        if (s->used)
            operate(s);
        break;
    }
}

static void begin(void)
{
    get_queue();
    get_set();
}

static void end(void)
{
    for (int i = 0; i < OBJECTS; i++) {
        if (queues[i].used)
            tell(msgctl(queues[i].id, IPC_RMID, NULL), "msgctl %d remove", i);
        if (sets[i].used)
            tell(semctl(sets[i].id, 0, IPC_RMID), "semctl %d remove", i);
        queues[i].used = sets[i].used = 0;
    }
}

int main(int argc, char **argv)
{
    return run_sequences(argc, argv, &(struct sequences){.calls = 80, .begin = begin, .act = act, .end = end});
}
