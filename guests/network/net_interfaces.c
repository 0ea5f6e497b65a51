/* The loopback interface: by ioctl, if_nametoindex, if_nameindex, getifaddrs. Native interfaces besides it are ignored.
 *
 * expect: same
 */
#include "guest.h"
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

int main(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0), found = 0;
    struct ifreq request;
    char name[IF_NAMESIZE];
    memset(&request, 0, sizeof request);
    strcpy(request.ifr_name, "lo");
    CHECK(ioctl(fd, SIOCGIFINDEX, &request) == 0 && request.ifr_ifindex == 1);
    CHECK(ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & (IFF_UP | IFF_LOOPBACK)) == (IFF_UP | IFF_LOOPBACK));
    struct sockaddr_in *in = (struct sockaddr_in *)&request.ifr_addr;
    CHECK(ioctl(fd, SIOCGIFADDR, &request) == 0 && in->sin_family == AF_INET && in->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(ioctl(fd, SIOCGIFNETMASK, &request) == 0 && in->sin_addr.s_addr == htonl(0xff000000));
    CHECK(ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu == 65536);
    CHECK(ioctl(fd, SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK);
    strcpy(request.ifr_name, "nothing0");
    CHECK_ERRNO(ioctl(fd, SIOCGIFINDEX, &request), ENODEV);
    struct ifreq all[16];
    struct ifconf conf = {.ifc_len = sizeof all, .ifc_req = all};
    CHECK(ioctl(fd, SIOCGIFCONF, &conf) == 0 && conf.ifc_len >= (int)sizeof all[0]);
    for (int i = 0; i < conf.ifc_len / (int)sizeof all[0]; i++)
        found += strcmp(all[i].ifr_name, "lo") == 0;
    CHECK(found == 1);
    say("ioctl");

    CHECK(if_nametoindex("lo") == 1 && if_nametoindex("nothing0") == 0);
    CHECK(if_indextoname(1, name) && strcmp(name, "lo") == 0);
    struct if_nameindex *names = if_nameindex();
    CHECK(names && names[0].if_index == 1 && strcmp(names[0].if_name, "lo") == 0);
    if_freenameindex(names);
    say("names");

    struct ifaddrs *list;
    CHECK(getifaddrs(&list) == 0);
    found = 0;
    for (struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || strcmp(at->ifa_name, "lo") != 0)
            continue;
        CHECK(((struct sockaddr_in *)at->ifa_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        CHECK((at->ifa_flags & IFF_LOOPBACK) && at->ifa_netmask);
        found++;
    }
    freeifaddrs(list);
    CHECK(found == 1);
    CHECK(fchmod(fd, 0600) == 0 && fchown(fd, getuid(), getgid()) == 0);
    say("addresses");
    return 0;
}
