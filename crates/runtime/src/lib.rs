//! `libskein.so`: preloaded into an unmodified server, it makes the server's execution a function of the log.
//!
//! # What it is
//!
//! A small library operating system. Calls that block, communicate, tell the time, give random bytes or create threads are
//! interposed ([`entry`]) and answered from objects in the arena ([`skein_libos`], whose host this is ([`libos`]); `io/`, [`time`], [`random`]); everything
//! else, above all regular files, passes through to the kernel. Calls that do not come through a symbol are caught by the safety net ([`entry`]),
//! and places that are caught often are replaced ([`patch`]).
//!
//! # Who runs
//!
//! One thread of the server at a time: the holder of the turn ([`turn`]). It keeps the turn until it blocks or its quantum is used up.
//! Because of that nothing in here is locked, and objects change through cells.
//!
//! All threads are run by one kernel thread, the *carrier* ([`turn::carrier`], [`context`]): every pthread is really created, so that its stack, TLS and
//! destructors are libc's own, but its kernel thread parks at once and the carrier switches to its stack and TLS. Only a thread that
//! ends runs on its own kernel thread again ("pinned"), while the carrier waits, so that libc's exit path is the real one.
//!
//! The runtime works for a thread on a stack of its own ([`stack`], [`frame`]), so that it leaves nothing in the server's memory but answers.
//!
//! # When the world comes in
//!
//! Only at an admission ([`turn::admit`]): when no thread can run, or at a slot of the schedule. Everything that a server may observe between two
//! admissions is computed, so replicas that admit the same entries execute the same instructions (CRANE, sections 3 and 4).
//!
//! # Signals
//!
//! Virtual as well ([`signal`]): they come from the server itself, its timers and the log, and a handler runs at the end of an operation of its thread.
//!
//! # Rooms
//!
//! From the bottom: words of the process ([`local`]) and code without state ([`sys`], [`fatal`], [`stack`], [`frame`], [`patch`] and their like); the state in
//! the arena ([`kernel`]); the turn, with admission and output ([`turn`]); the server's calls, each on the ones before: [`signal`], [`time`], `io/` (virtual descriptors), [`files`], [`process`],
//! [`thread`]; the library's host ([`libos`]); the server's entries ([`entry`]). A room reaches what is above it by the host's trait ([`skein_libos::Host`]), or by functions that it
//! gets at the start ([`turn::above`]). `cargo xtask tidy` checks that rooms do not use each other in circles, and lists their arrows with `--rooms`.
//!
//! # Rules in here
//!
//! No allocation, no locks, no stdio, no thread-locals, no panics on purpose except for broken invariants; own system calls are made directly
//! ([`sys`]), from this library's text, which the net lets through. `errno` is set only by a hook that returns an error.
//! A broken invariant ends the server with a `Fatal` frame ([`fatal`]): never silently wrong.

mod advice;
mod context;
mod entry;
mod fatal;
mod files;
mod frame;
mod glibc;
mod image;
mod io;
mod ipc;
mod kernel;
mod libos;
mod loader;
mod local;
mod machine;
mod origin;
mod original;
mod patch;
mod process;
mod random;
mod restore;
mod signal;
mod spin;
mod stack;
mod sync;
mod sys;
mod thread;
mod time;
mod turn;
mod uses;
mod vectors;
