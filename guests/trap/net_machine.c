/* Administration and observation of the machine: a server needs none of it, and all of it is refused by name. With these arguments it
 * fails or changes nothing natively.
 *
 * expect: same
 * refused: mount
 */
#include "raw.h"

static void refused(long number, const char *name)
{
    long result = raw3(number, -1, -1, -1);
    note("%s %ld", name, result);
    CHECK(result < 0);
}

int main(void)
{
    refused(SYS_mount, "mount");
    refused(SYS_pivot_root, "pivot_root");
    refused(SYS_swapon, "swapon");
    refused(SYS_init_module, "init_module");
    refused(SYS_bpf, "bpf");
    refused(SYS_perf_event_open, "perf_event_open");
    refused(SYS_keyctl, "keyctl");
    refused(SYS_userfaultfd, "userfaultfd");
    refused(SYS_kcmp, "kcmp");
    refused(SYS_process_vm_readv, "process_vm_readv");
    refused(SYS_mbind, "mbind");
    refused(SYS_quotactl, "quotactl");
    refused(SYS_fanotify_init, "fanotify_init");
    refused(SYS_clock_settime, "clock_settime");
    say("none of it works");
    return 0;
}
