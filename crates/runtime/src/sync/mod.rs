//! What of synchronisation needs the C library: attribute objects, its own named semaphores, C11's numbers, and `pthread_once`, whose frame is
//! written by hand. The objects themselves are [`skein_libos::sync`]'s.

pub mod attributes;
pub mod c11;
pub mod named;
pub mod once;
