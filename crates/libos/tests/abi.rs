//! The numbers and layouts of [`skein_libos::abi`] are the C library's.

use skein_libos::abi;

/// The C library's numbers, by name.
macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as i64)),*] };
}

#[rustfmt::skip]
const LIBC: &[(&str, i64)] = of_libc!(
    CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME EAGAIN EBUSY EDEADLK EFAULT EINTR EINVAL ENOMEM ENOSYS
    ENOTRECOVERABLE ENOTSUP EOVERFLOW EOWNERDEAD EPERM ESRCH ETIMEDOUT FUTEX_CLOCK_REALTIME FUTEX_CMP_REQUEUE
    FUTEX_CMP_REQUEUE_PI FUTEX_LOCK_PI FUTEX_OWNER_DIED FUTEX_PRIVATE_FLAG FUTEX_REQUEUE FUTEX_TRYLOCK_PI
    FUTEX_UNLOCK_PI FUTEX_WAIT FUTEX_WAITERS FUTEX_WAIT_BITSET FUTEX_WAIT_REQUEUE_PI FUTEX_WAKE FUTEX_WAKE_BITSET
    FUTEX_WAKE_OP PTHREAD_MUTEX_ERRORCHECK PTHREAD_MUTEX_RECURSIVE PTHREAD_PRIO_INHERIT PTHREAD_PRIO_PROTECT
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
    }
}
