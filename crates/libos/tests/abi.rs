//! The numbers and layouts of [`skein_libos::abi`] are the C library's.

use skein_libos::abi;

/// The C library's numbers, by name.
macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as i64)),*] };
}

#[rustfmt::skip]
const LIBC: &[(&str, i64)] = of_libc!(
    AF_BRIDGE AF_INET AF_INET6 ARPHRD_ETHER ARPHRD_LOOPBACK CLOCK_BOOTTIME CLOCK_BOOTTIME_ALARM CLOCK_MONOTONIC
    CLOCK_REALTIME CLOCK_REALTIME_ALARM E2BIG EACCES EADDRNOTAVAIL EAGAIN EBADF EBUSY ECHILD EDEADLK EEXIST EFAULT
    EFBIG EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE EIDRM EINTR EINVAL ELOOP EMFILE EMSGSIZE ENAMETOOLONG ENETUNREACH
    ENFILE ENODEV ENOENT ENOMEM ENOMSG ENOSPC ENOSYS ENOTRECOVERABLE ENOTSUP EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM
    EPIPE EPOLLERR EPOLLET EPOLLEXCLUSIVE EPOLLHUP EPOLLIN EPOLLONESHOT EPOLLOUT EPOLLPRI EPOLLRDBAND EPOLLRDHUP
    EPOLLRDNORM EPOLLWAKEUP EPOLLWRBAND EPOLLWRNORM EPOLL_CLOEXEC EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD ERANGE
    ESRCH ETIMEDOUT FUTEX_CLOCK_REALTIME FUTEX_CMP_REQUEUE FUTEX_CMP_REQUEUE_PI FUTEX_LOCK_PI FUTEX_OWNER_DIED
    FUTEX_PRIVATE_FLAG FUTEX_REQUEUE FUTEX_TRYLOCK_PI FUTEX_UNLOCK_PI FUTEX_WAIT FUTEX_WAITERS FUTEX_WAIT_BITSET
    FUTEX_WAIT_REQUEUE_PI FUTEX_WAKE FUTEX_WAKE_BITSET FUTEX_WAKE_OP GETALL GETNCNT GETPID GETVAL GETZCNT
    IFA_ADDRESS IFA_BROADCAST IFA_CACHEINFO IFA_LABEL IFA_LOCAL IFF_BROADCAST IFF_LOOPBACK IFF_MULTICAST IFF_RUNNING
    IFF_UP IFLA_ADDRESS IFLA_BROADCAST IFLA_IFNAME IFLA_LINKMODE IFLA_MTU IFLA_OPERSTATE IFLA_QDISC IFLA_STATS
    IFLA_STATS64 IFLA_TXQLEN IN_ALL_EVENTS IN_CLOEXEC IN_NONBLOCK IPC_CREAT IPC_EXCL IPC_INFO IPC_NOWAIT IPC_PRIVATE
    IPC_RMID IPC_SET IPC_STAT MSG_COPY MSG_EXCEPT MSG_NOERROR NLMSG_DONE NLMSG_ERROR NLM_F_ACK NLM_F_DUMP
    NLM_F_MULTI NLM_F_REQUEST O_ACCMODE O_APPEND O_ASYNC O_CLOEXEC O_CREAT O_DIRECT O_EXCL O_NONBLOCK O_RDONLY
    O_RDWR O_WRONLY PIPE_BUF POLLNVAL PTHREAD_MUTEX_ERRORCHECK PTHREAD_MUTEX_RECURSIVE PTHREAD_PRIO_INHERIT
    PTHREAD_PRIO_PROTECT RTA_DST RTA_OIF RTA_PREFSRC RTA_PRIORITY RTA_TABLE RTM_GETADDR RTM_GETLINK RTM_GETNEIGH
    RTM_GETROUTE RTM_NEWADDR RTM_NEWLINK RTM_NEWROUTE RTN_BROADCAST RTN_LOCAL RTN_UNICAST RTPROT_KERNEL
    RT_SCOPE_HOST RT_SCOPE_LINK RT_SCOPE_UNIVERSE RT_TABLE_LOCAL RT_TABLE_MAIN SETALL SETVAL TFD_CLOEXEC
    TFD_NONBLOCK TFD_TIMER_ABSTIME TFD_TIMER_CANCEL_ON_SET
);

#[test]
fn numbers_are_the_c_librarys() {
    for ((name, number), (of, expected)) in abi::ALL.iter().zip(LIBC) {
        assert_eq!((name, number), (of, expected));
    }
    assert_eq!(abi::ALL.len(), LIBC.len());
}

#[test]
fn layouts_are_the_c_librarys() {
    macro_rules! same {
        ($($name:ident: $($field:ident)*;)*) => { $(
            assert_eq!(size_of::<abi::$name>(), size_of::<libc::$name>(), stringify!($name));
            assert_eq!(align_of::<abi::$name>(), align_of::<libc::$name>(), stringify!($name));
            $(
                let (own, of_libc) = (
                    std::mem::offset_of!(abi::$name, $field),
                    std::mem::offset_of!(libc::$name, $field),
                );
                assert_eq!(own, of_libc, "{}.{}", stringify!($name), stringify!($field));
            )*
        )* };
    }
    same! {
        timespec: tv_sec tv_nsec;
        itimerspec: it_interval it_value;
        iovec: iov_base iov_len;
        pollfd: fd events revents;
        epoll_event: events u64;
        sembuf: sem_num sem_op sem_flg;
    }
}
