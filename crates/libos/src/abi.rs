//! Numbers and layouts that a server shares with its operating system: those of Linux on `x86_64`, by the names of its headers.
//!
//! `tests/abi.rs` compares all of them with the C library's definitions.
#![allow(non_camel_case_types, missing_docs)]

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

/// Defines the numbers, and lists them for whoever compares.
macro_rules! numbers {
    ($($name:ident: $type:ty = $value:expr,)*) => {
        $(pub const $name: $type = $value;)*

        /// All of the above, by name.
        pub const ALL: &[(&str, i64)] = &[$((stringify!($name), $value as i64),)*];
    };
}

// --- numbers ---

numbers! {
    CLOCK_BOOTTIME: i32 = 7,
    CLOCK_MONOTONIC: i32 = 1,
    CLOCK_REALTIME: i32 = 0,
    EAGAIN: i32 = 11,
    EBUSY: i32 = 16,
    EDEADLK: i32 = 35,
    EFAULT: i32 = 14,
    EINTR: i32 = 4,
    EINVAL: i32 = 22,
    ENOMEM: i32 = 12,
    ENOSYS: i32 = 38,
    ENOTRECOVERABLE: i32 = 131,
    ENOTSUP: i32 = 95,
    EOVERFLOW: i32 = 75,
    EOWNERDEAD: i32 = 130,
    EPERM: i32 = 1,
    ESRCH: i32 = 3,
    ETIMEDOUT: i32 = 110,
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
    PTHREAD_MUTEX_ERRORCHECK: i32 = 2,
    PTHREAD_MUTEX_RECURSIVE: i32 = 1,
    PTHREAD_PRIO_INHERIT: i32 = 1,
    PTHREAD_PRIO_PROTECT: i32 = 2,
}
