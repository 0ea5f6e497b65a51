/* The loopback interface by netlink: links, addresses and routes, all of them and one, and refused requests. Others are ignored.
 *
 * expect: same
 */
#include "netlink.h"
#include <net/if.h>
#include <net/if_arp.h>

static int fd;

static void send_question(const struct question *q)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    CHECK(sendto(fd, q, q->head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof kernel) == (ssize_t)q->head.nlmsg_len);
}

/* The error that answers a request; 0 is an acknowledgement. */
static int error_of(const struct question *q)
{
    char buffer[8192];
    send_question(q);
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    CHECK(n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)));
    const struct nlmsghdr *head = (const struct nlmsghdr *)buffer;
    const struct nlmsgerr *error = NLMSG_DATA(head);
    CHECK(head->nlmsg_type == NLMSG_ERROR && head->nlmsg_seq == 4711 && error->msg.nlmsg_type == q->head.nlmsg_type);
    return -error->error;
}

static void show_link(const struct nlmsghdr *head)
{
    const struct ifinfomsg *link = NLMSG_DATA(head);
    if (link->ifi_index != 1)
        return;
    const struct rtattr *name = attribute(head, sizeof *link, IFLA_IFNAME), *mtu = attribute(head, sizeof *link, IFLA_MTU),
                        *at = attribute(head, sizeof *link, IFLA_ADDRESS);
    CHECK(name && mtu && at && link->ifi_type == ARPHRD_LOOPBACK);
    CHECK((link->ifi_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING)) == (IFF_UP | IFF_LOOPBACK | IFF_RUNNING));
    CHECK(attribute(head, sizeof *link, IFLA_STATS64) && attribute(head, sizeof *link, IFLA_STATS));
    say("link %s mtu %u hardware of %d bytes", (char *)RTA_DATA(name), *(uint32_t *)RTA_DATA(mtu), (int)RTA_PAYLOAD(at));
}

static void show_address(const struct nlmsghdr *head)
{
    const struct ifaddrmsg *address = NLMSG_DATA(head);
    if (address->ifa_index != 1 || address->ifa_family != AF_INET)
        return;
    const struct rtattr *local = attribute(head, sizeof *address, IFA_LOCAL), *at = attribute(head, sizeof *address, IFA_ADDRESS),
                        *label = attribute(head, sizeof *address, IFA_LABEL);
    char text[INET_ADDRSTRLEN];
    CHECK(local && at && label && memcmp(RTA_DATA(local), RTA_DATA(at), 4) == 0);
    CHECK(attribute(head, sizeof *address, IFA_CACHEINFO) && (address->ifa_flags & IFA_F_PERMANENT));
    say("address %s/%d scope %d of %s", inet_ntop(AF_INET, RTA_DATA(local), text, sizeof text), address->ifa_prefixlen,
        address->ifa_scope, (char *)RTA_DATA(label));
}

static void show_route(const struct nlmsghdr *head)
{
    const struct rtmsg *route = NLMSG_DATA(head);
    const struct rtattr *to = attribute(head, sizeof *route, RTA_DST), *by = attribute(head, sizeof *route, RTA_OIF),
                        *from = attribute(head, sizeof *route, RTA_PREFSRC);
    if (route->rtm_family != AF_INET || !to || !by || *(int *)RTA_DATA(by) != 1)
        return;
    char text[INET_ADDRSTRLEN], source[INET_ADDRSTRLEN] = "";
    if (from)
        inet_ntop(AF_INET, RTA_DATA(from), source, sizeof source);
    say("route %s/%d table %d scope %d type %d from %s", inet_ntop(AF_INET, RTA_DATA(to), text, sizeof text), route->rtm_dst_len,
        route->rtm_table, route->rtm_scope, route->rtm_type, source);
}

static void show(const struct nlmsghdr *head)
{
    if (head->nlmsg_type == RTM_NEWLINK)
        show_link(head);
    else if (head->nlmsg_type == RTM_NEWADDR)
        show_address(head);
    else if (head->nlmsg_type == RTM_NEWROUTE)
        show_route(head);
    else
        CHECK(!"a message that was asked for");
}

/* Reads answers to the end of a dump. */
static void read_all(uint32_t id)
{
    for (;;) {
        char buffer[65536];
        struct sockaddr_nl from = {0};
        socklen_t length = sizeof from;
        CHECK(recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC) > 0);
        int left = (int)recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length);
        CHECK(left > 0 && length == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0 && from.nl_groups == 0);
        for (struct nlmsghdr *head = (struct nlmsghdr *)buffer; NLMSG_OK(head, (unsigned)left); head = NLMSG_NEXT(head, left)) {
            CHECK(head->nlmsg_seq == 4711 && head->nlmsg_pid == id && (head->nlmsg_flags & NLM_F_MULTI));
            if (head->nlmsg_type == NLMSG_DONE)
                return;
            show(head);
        }
    }
}

static void read_one(void)
{
    char buffer[16384];
    struct nlmsghdr *head = (struct nlmsghdr *)buffer;
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    CHECK(n >= (ssize_t)sizeof *head && NLMSG_OK(head, (unsigned)n) && !(head->nlmsg_flags & NLM_F_MULTI));
    show(head);
}

int main(void)
{
    struct question q;
    struct sockaddr_nl own = {.nl_family = AF_NETLINK};
    socklen_t length = sizeof own;
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&own, &length) == 0 && length == sizeof own && own.nl_family == AF_NETLINK);
    /* Another process of the same number in another namespace may have the number. */
    CHECK(own.nl_pid == (uint32_t)getpid() || (int32_t)own.nl_pid < 0);

    say("all");
    ask(&q, RTM_GETLINK, NLM_F_DUMP, sizeof q.body.link);
    send_question(&q);
    read_all(own.nl_pid);
    ask(&q, RTM_GETADDR, NLM_F_DUMP, sizeof q.body.address);
    q.body.address.ifa_family = AF_INET;
    send_question(&q);
    read_all(own.nl_pid);
    ask(&q, RTM_GETROUTE, NLM_F_DUMP, sizeof q.body.route);
    q.body.route.rtm_family = AF_INET;
    send_question(&q);
    read_all(own.nl_pid);

    say("one");
    ask(&q, RTM_GETLINK, 0, sizeof q.body.link);
    q.body.link.ifi_index = 1;
    send_question(&q);
    read_one();
    ask(&q, RTM_GETLINK, 0, sizeof q.body.link);
    also(&q, IFLA_IFNAME, "lo", 3);
    send_question(&q);
    read_one();
    ask(&q, RTM_GETROUTE, 0, sizeof q.body.route);
    q.body.route.rtm_family = AF_INET;
    q.body.route.rtm_dst_len = 32;
    also(&q, RTA_DST, (unsigned char[]){127, 0, 0, 1}, 4);
    send_question(&q);
    read_one();

    say("errors");
    ask(&q, RTM_GETLINK, 0, sizeof q.body.link);
    q.body.link.ifi_index = 4000;
    CHECK(error_of(&q) == ENODEV);
    also(&q, IFLA_IFNAME, "nothing0", 9);
    q.body.link.ifi_index = 0;
    CHECK(error_of(&q) == ENODEV);
    ask(&q, RTM_GETLINK, 0, sizeof q.body.any);
    CHECK(error_of(&q) == EINVAL);
    ask(&q, RTM_GETADDR, 0, sizeof q.body.address);
    q.body.address.ifa_family = AF_INET;
    CHECK(error_of(&q) == EOPNOTSUPP);
    ask(&q, 126, 0, sizeof q.body.any);
    CHECK(error_of(&q) == EOPNOTSUPP);
    ask(&q, NLMSG_NOOP, NLM_F_ACK, sizeof q.body.any);
    CHECK(error_of(&q) == 0);
    /* Two requests at once; the answer to the first is not read. */
    struct {
        struct question first, second;
    } both;
    ask(&both.first, NLMSG_NOOP, NLM_F_ACK, sizeof both.first - sizeof both.first.head);
    both.first.head.nlmsg_flags = NLM_F_ACK;
    ask(&both.second, RTM_GETLINK, 0, sizeof q.body.link);
    both.second.body.link.ifi_index = 1;
    size_t whole = sizeof both.first + both.second.head.nlmsg_len;
    CHECK(send(fd, &both, whole, 0) == (ssize_t)whole);
    char buffer[4096];
    CHECK(recv(fd, buffer, sizeof buffer, 0) > 0 && ((struct nlmsghdr *)buffer)->nlmsg_type == NLMSG_ERROR);
    read_one();
    CHECK_ERRNO(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT), EAGAIN);

    /* Changes need a privilege. */
    if (setuid(65534) == 0) {
        CHECK(close(fd) == 0 && (fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)) >= 0);
        ask(&q, RTM_DELLINK, NLM_F_ACK, sizeof q.body.link);
        q.body.link.ifi_index = 1;
        CHECK(error_of(&q) == EPERM);
        ask(&q, RTM_NEWADDR, NLM_F_ACK, sizeof q.body.address);
        CHECK(error_of(&q) == EPERM);
    }
    say("done");
    return 0;
}
