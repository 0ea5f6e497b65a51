/* Requests by a netlink socket, and the content of their answers. */
#ifndef NETLINK_H
#define NETLINK_H

#include "guest.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

struct question {
    struct nlmsghdr head;
    union {
        struct rtgenmsg any;
        struct ifinfomsg link;
        struct ifaddrmsg address;
        struct rtmsg route;
    } body;
    char more[64];
};

static inline __attribute__((unused)) void ask(struct question *q, int type, int flags, size_t body)
{
    memset(q, 0, sizeof *q);
    q->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
    q->head.nlmsg_type = (uint16_t)type;
    q->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    q->head.nlmsg_seq = 4711;
}

static inline __attribute__((unused)) void also(struct question *q, int type, const void *data, size_t length)
{
    struct rtattr *at = (struct rtattr *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));
    at->rta_type = (uint16_t)type;
    at->rta_len = (uint16_t)RTA_LENGTH(length);
    memcpy(RTA_DATA(at), data, length);
    q->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(at->rta_len));
}

/* An attribute behind `body` bytes of a message; NULL when there is none. */
static inline __attribute__((unused)) const struct rtattr *attribute(const struct nlmsghdr *head, size_t body, int type)
{
    const struct rtattr *at = (const struct rtattr *)((const char *)NLMSG_DATA(head) + NLMSG_ALIGN(body));
    int left = (int)(head->nlmsg_len - NLMSG_SPACE(body));
    for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
        if (at->rta_type == type)
            return at;
    return NULL;
}

#endif
