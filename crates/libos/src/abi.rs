//! Numbers and layouts that a server shares with its operating system: those of Linux on `x86_64`, under the names of its headers.
//!
//! `tests/abi.rs` compares all of them with the C library's definitions.
#![allow(non_camel_case_types, missing_docs)]

pub use core::ffi::c_void;

/// A time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

/// A timer's setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct itimerspec {
    pub it_interval: timespec,
    pub it_value: timespec,
}

/// A part of a scattered buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct iovec {
    pub iov_base: *mut c_void,
    pub iov_len: usize,
}

/// An entry of `poll`: a descriptor, and the requested and reported events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct pollfd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

/// An event that an epoll set reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed)]
pub struct epoll_event {
    pub events: u32,
    pub u64: u64,
}

/// An operation on a semaphore of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct sembuf {
    pub sem_num: u16,
    pub sem_op: i16,
    pub sem_flg: i16,
}

/// A file's facts, as `fstat` answers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct stat {
    pub st_dev: u64,
    pub st_ino: u64,
    pub st_nlink: u64,
    pub st_mode: u32,
    pub st_uid: u32,
    pub st_gid: u32,
    pub _pad: i32,
    pub st_rdev: u64,
    pub st_size: i64,
    pub st_blksize: i64,
    pub st_blocks: i64,
    pub st_atime: i64,
    pub st_atime_nsec: i64,
    pub st_mtime: i64,
    pub st_mtime_nsec: i64,
    pub st_ctime: i64,
    pub st_ctime_nsec: i64,
    pub _unused: [i64; 3],
}

/// Defines the numbers, and lists them for the test that compares them.
macro_rules! numbers {
    ($($name:ident: $type:ty = $value:expr,)*) => {
        $(pub const $name: $type = $value;)*

        /// All of the above, by name.
        pub const ALL: &[(&str, i64)] = &[$((stringify!($name), $value as i64),)*];
    };
}

pub mod signals;
pub mod sockets;
pub use signals::*;
pub use sockets::*;

// --- numbers ---

numbers! {
    AF_BRIDGE: i32 = 7,
    AF_INET: i32 = 2,
    AF_INET6: i32 = 10,
    ARPHRD_ETHER: u16 = 1,
    ARPHRD_LOOPBACK: u16 = 772,
    CLOCK_BOOTTIME: i32 = 7,
    CLOCK_BOOTTIME_ALARM: i32 = 9,
    CLOCK_MONOTONIC: i32 = 1,
    CLOCK_REALTIME: i32 = 0,
    CLOCK_REALTIME_ALARM: i32 = 8,
    CLOSE_RANGE_CLOEXEC: u32 = 4,
    CLOSE_RANGE_UNSHARE: u32 = 2,
    E2BIG: i32 = 7,
    EACCES: i32 = 13,
    EADDRINUSE: i32 = 98,
    EADDRNOTAVAIL: i32 = 99,
    EAFNOSUPPORT: i32 = 97,
    EAGAIN: i32 = 11,
    EALREADY: i32 = 114,
    EBADF: i32 = 9,
    EBUSY: i32 = 16,
    ECHILD: i32 = 10,
    ECONNABORTED: i32 = 103,
    ECONNREFUSED: i32 = 111,
    ECONNRESET: i32 = 104,
    EDEADLK: i32 = 35,
    EDESTADDRREQ: i32 = 89,
    EDOM: i32 = 33,
    EEXIST: i32 = 17,
    EFAULT: i32 = 14,
    EFBIG: i32 = 27,
    EFD_CLOEXEC: i32 = 524288,
    EFD_NONBLOCK: i32 = 2048,
    EFD_SEMAPHORE: i32 = 1,
    EIDRM: i32 = 43,
    EINPROGRESS: i32 = 115,
    EINTR: i32 = 4,
    EINVAL: i32 = 22,
    EISCONN: i32 = 106,
    ELOOP: i32 = 40,
    EMFILE: i32 = 24,
    EMSGSIZE: i32 = 90,
    ENAMETOOLONG: i32 = 36,
    ENETUNREACH: i32 = 101,
    ENFILE: i32 = 23,
    ENOBUFS: i32 = 105,
    ENODEV: i32 = 19,
    ENOENT: i32 = 2,
    ENOMEM: i32 = 12,
    ENOMSG: i32 = 42,
    ENOPROTOOPT: i32 = 92,
    ENOSPC: i32 = 28,
    ENOSYS: i32 = 38,
    ENOTCONN: i32 = 107,
    ENOTRECOVERABLE: i32 = 131,
    ENOTSOCK: i32 = 88,
    ENOTSUP: i32 = 95,
    ENOTTY: i32 = 25,
    ENXIO: i32 = 6,
    EOPNOTSUPP: i32 = 95,
    EOVERFLOW: i32 = 75,
    EOWNERDEAD: i32 = 130,
    EPERM: i32 = 1,
    EPIPE: i32 = 32,
    EPOLLERR: i32 = 8,
    EPOLLET: i32 = -2147483648,
    EPOLLEXCLUSIVE: i32 = 268435456,
    EPOLLHUP: i32 = 16,
    EPOLLIN: i32 = 1,
    EPOLLONESHOT: i32 = 1073741824,
    EPOLLOUT: i32 = 4,
    EPOLLPRI: i32 = 2,
    EPOLLRDBAND: i32 = 128,
    EPOLLRDHUP: i32 = 8192,
    EPOLLRDNORM: i32 = 64,
    EPOLLWAKEUP: i32 = 536870912,
    EPOLLWRBAND: i32 = 512,
    EPOLLWRNORM: i32 = 256,
    EPOLL_CLOEXEC: i32 = 524288,
    EPOLL_CTL_ADD: i32 = 1,
    EPOLL_CTL_DEL: i32 = 2,
    EPOLL_CTL_MOD: i32 = 3,
    EPROTO: i32 = 71,
    EPROTONOSUPPORT: i32 = 93,
    EPROTOTYPE: i32 = 91,
    ERANGE: i32 = 34,
    ESOCKTNOSUPPORT: i32 = 94,
    ESPIPE: i32 = 29,
    ESRCH: i32 = 3,
    ETIMEDOUT: i32 = 110,
    ETOOMANYREFS: i32 = 109,
    FD_CLOEXEC: i32 = 1,
    FIOASYNC: u32 = 0x5452,
    FIOCLEX: u32 = 0x5451,
    FIONBIO: u32 = 0x5421,
    FIONCLEX: u32 = 0x5450,
    FIONREAD: u32 = 0x541b,
    FUTEX_CLOCK_REALTIME: i32 = 256,
    FUTEX_CMP_REQUEUE: i32 = 4,
    FUTEX_CMP_REQUEUE_PI: i32 = 12,
    FUTEX_LOCK_PI: i32 = 6,
    FUTEX_OWNER_DIED: u32 = 0x40000000,
    FUTEX_PRIVATE_FLAG: i32 = 128,
    FUTEX_REQUEUE: i32 = 3,
    FUTEX_TRYLOCK_PI: i32 = 8,
    FUTEX_UNLOCK_PI: i32 = 7,
    FUTEX_WAIT: i32 = 0,
    FUTEX_WAITERS: u32 = 0x80000000,
    FUTEX_WAIT_BITSET: i32 = 9,
    FUTEX_WAIT_REQUEUE_PI: i32 = 11,
    FUTEX_WAKE: i32 = 1,
    FUTEX_WAKE_BITSET: i32 = 10,
    FUTEX_WAKE_OP: i32 = 5,
    F_DUPFD: i32 = 0,
    F_DUPFD_CLOEXEC: i32 = 1030,
    F_GETFD: i32 = 1,
    F_GETFL: i32 = 3,
    F_GETOWN: i32 = 9,
    F_GETPIPE_SZ: i32 = 1032,
    F_SETFD: i32 = 2,
    F_SETFL: i32 = 4,
    F_SETOWN: i32 = 8,
    F_SETPIPE_SZ: i32 = 1031,
    GETALL: i32 = 13,
    GETNCNT: i32 = 14,
    GETPID: i32 = 11,
    GETVAL: i32 = 12,
    GETZCNT: i32 = 15,
    IFA_ADDRESS: u16 = 1,
    IFA_BROADCAST: u16 = 4,
    IFA_CACHEINFO: u16 = 6,
    IFA_LABEL: u16 = 3,
    IFA_LOCAL: u16 = 2,
    IFF_BROADCAST: i32 = 2,
    IFF_LOOPBACK: i32 = 8,
    IFF_MULTICAST: i32 = 4096,
    IFF_RUNNING: i32 = 64,
    IFF_UP: i32 = 1,
    IFLA_ADDRESS: u16 = 1,
    IFLA_BROADCAST: u16 = 2,
    IFLA_IFNAME: u16 = 3,
    IFLA_LINKMODE: u16 = 17,
    IFLA_MTU: u16 = 4,
    IFLA_OPERSTATE: u16 = 16,
    IFLA_QDISC: u16 = 6,
    IFLA_STATS: u16 = 7,
    IFLA_STATS64: u16 = 23,
    IFLA_TXQLEN: u16 = 13,
    IN_ALL_EVENTS: u32 = 0xfff,
    IN_CLOEXEC: i32 = 524288,
    IN_NONBLOCK: i32 = 2048,
    IPC_CREAT: i32 = 512,
    IPC_EXCL: i32 = 1024,
    IPC_INFO: i32 = 3,
    IPC_NOWAIT: i32 = 2048,
    IPC_PRIVATE: i32 = 0,
    IPC_RMID: i32 = 0,
    IPC_SET: i32 = 1,
    IPC_STAT: i32 = 2,
    MSG_COPY: i32 = 16384,
    MSG_EXCEPT: i32 = 8192,
    MSG_NOERROR: i32 = 4096,
    NLMSG_DONE: i32 = 3,
    NLMSG_ERROR: i32 = 2,
    NLM_F_ACK: i32 = 4,
    NLM_F_DUMP: i32 = 768,
    NLM_F_MULTI: i32 = 2,
    NLM_F_REQUEST: i32 = 1,
    O_ACCMODE: i32 = 3,
    O_APPEND: i32 = 1024,
    O_ASYNC: i32 = 8192,
    O_CLOEXEC: i32 = 524288,
    O_CREAT: i32 = 64,
    O_DIRECT: i32 = 16384,
    O_EXCL: i32 = 128,
    O_NOATIME: i32 = 0o1000000,
    O_NONBLOCK: i32 = 2048,
    O_RDONLY: i32 = 0,
    O_RDWR: i32 = 2,
    O_WRONLY: i32 = 1,
    PIPE_BUF: usize = 0x1000,
    POLLNVAL: i16 = 32,
    PTHREAD_MUTEX_ERRORCHECK: i32 = 2,
    PTHREAD_MUTEX_RECURSIVE: i32 = 1,
    PTHREAD_PRIO_INHERIT: i32 = 1,
    PTHREAD_PRIO_PROTECT: i32 = 2,
    RTA_DST: u16 = 1,
    RTA_OIF: u16 = 4,
    RTA_PREFSRC: u16 = 7,
    RTA_PRIORITY: u16 = 6,
    RTA_TABLE: u16 = 15,
    RTM_GETADDR: u16 = 22,
    RTM_GETLINK: u16 = 18,
    RTM_GETNEIGH: u16 = 30,
    RTM_GETROUTE: u16 = 26,
    RTM_NEWADDR: u16 = 20,
    RTM_NEWLINK: u16 = 16,
    RTM_NEWROUTE: u16 = 24,
    RTN_BROADCAST: u8 = 3,
    RTN_LOCAL: u8 = 2,
    RTN_UNICAST: u8 = 1,
    RTPROT_KERNEL: u8 = 2,
    RT_SCOPE_HOST: u8 = 254,
    RT_SCOPE_LINK: u8 = 253,
    RT_SCOPE_UNIVERSE: u8 = 0,
    RT_TABLE_LOCAL: u8 = 255,
    RT_TABLE_MAIN: u8 = 254,
    SEEK_HOLE: i32 = 4,
    SEEK_SET: i32 = 0,
    SETALL: i32 = 17,
    SETVAL: i32 = 16,
    SPLICE_F_GIFT: u32 = 8,
    SPLICE_F_MORE: u32 = 4,
    SPLICE_F_MOVE: u32 = 1,
    SPLICE_F_NONBLOCK: u32 = 2,
    S_IFCHR: u32 = 0o020000,
    S_IFIFO: u32 = 0o010000,
    S_IFSOCK: u32 = 0o140000,
    SFD_CLOEXEC: i32 = 524288,
    SFD_NONBLOCK: i32 = 2048,
    TFD_CLOEXEC: i32 = 524288,
    TFD_NONBLOCK: i32 = 2048,
    TFD_TIMER_ABSTIME: i32 = 1,
    TFD_TIMER_CANCEL_ON_SET: i32 = 2,
    TIOCOUTQ: u32 = 0x5411,
}
