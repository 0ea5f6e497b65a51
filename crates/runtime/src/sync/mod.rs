//! The part of synchronisation that needs the C library: attribute objects, its own named semaphores, C11's numbers. The objects themselves are [`skein_libos::sync`]'s.

pub mod attributes;
pub mod c11;
pub mod named;
