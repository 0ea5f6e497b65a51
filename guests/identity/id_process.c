/* Identity: pid, tid, ppid, uid, host name, uname, CPU number and count, page size; the values go to standard error.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/sysinfo.h>
#include <sys/utsname.h>

int main(void)
{
    char host[256];
    struct utsname names;
    unsigned cpu, node;
    CHECK(getpid() > 0 && getpid() == getpid() && gettid() == getpid());
    CHECK(getppid() >= 0);
    CHECK(getpgrp() >= 0 && getsid(0) >= 0);
    note("pid %d ppid %d pgrp %d", getpid(), getppid(), getpgrp());
    CHECK(gethostname(host, sizeof host) == 0);
    CHECK(uname(&names) == 0);
    CHECK(strcmp(host, names.nodename) == 0);
    CHECK(strcmp(names.sysname, "Linux") == 0);
    note("host %s release %s machine %s", host, names.release, names.machine);
    int number = sched_getcpu();
    CHECK(number >= 0 && number < 4096);
    CHECK(getcpu(&cpu, &node) == 0);
    long online = sysconf(_SC_NPROCESSORS_ONLN), configured = sysconf(_SC_NPROCESSORS_CONF);
    CHECK(online >= 1 && configured >= online);
    CHECK(get_nprocs() == online);
    note("cpu %d %u, online %ld, configured %ld", number, cpu, online, configured);
    note("uid %d gid %d", getuid(), getgid());
    say("page size %ld", sysconf(_SC_PAGESIZE));
    return 0;
}
