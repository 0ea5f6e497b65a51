//! The one dispatcher: the answer to each system call that the runtime handles.
//!
//! Hooks, the net, `syscall()` and patched stubs all come here. A hook names the number at compile time ([`made!`], which costs no look-up), the others
//! at run time ([`by_number`]). The answers are one list, [`list`]: number, arguments with their types, and the answering code.
//!
//! A call's row in `crates/interpose` alone decides its treatment. A virtual or agreed call has an answer to every
//! question. A checked call answers virtual objects and passes the rest to the kernel. All others have no answer in the list. The compiler checks this for every
//! row and for every answer ([`check`]).

mod list;

use crate::fatal::{self, refuse, refused};
use crate::files::disk;
use crate::io::table::no_own;
use crate::kernel::{Kernel, kernel};
use crate::local::LOCAL;
use crate::machine;
use crate::process::shared;
use crate::sys;
use crate::turn;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use skein_interpose::{SYSCALLS, Treatment};
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

/// The system call of this number. Those with an answer have a function `make`, with the arguments' types.
pub struct Syscall<const NR: i64>;

/// Makes a system call for the server, as the list says: `made!(SYS_read(fd, to, len))`. The arguments are cast to the types of the list.
macro_rules! made {
    ($nr:ident($($arg:expr),* $(,)?)) => {
        $crate::entry::calls::Syscall::<{ $crate::entry::calls::number::$nr }>::make($($arg as _),*)
    };
}
pub(crate) use made;

/// The numbers, by name.
pub mod number {
    pub use libc::*;
    /// `fchmodat2`, which libc does not name.
    #[allow(non_upper_case_globals, reason = "named as in libc")]
    pub const SYS_fchmodat2: i64 = 452;
}

/// Makes a system call for the server by a number known at run time.
///
/// # Safety
/// The arguments are the server's for this call.
pub unsafe fn by_number(nr: i64, a: [usize; 6]) -> Result<usize> {
    // What the runtime notes of memory, libc's own functions have hooks for.
    match nr {
        libc::SYS_mmap => return shared::mmap(a),
        libc::SYS_munmap => return shared::munmap(a[0], a[1]).map(|()| 0),
        libc::SYS_mremap => return shared::mremap(a),
        _ => {}
    }
    // SAFETY: the caller's contract.
    unsafe { list::answered(nr, a).unwrap_or_else(|| by_row(nr, a)) }
}

/// As [`by_number`], for a call without an answer in the list whose number is known at compile time.
///
/// # Safety
/// The arguments are the server's for this call.
#[inline(always)]
pub unsafe fn of_row<const NR: i64>(a: [usize; 6]) -> Result<usize> {
    const { assert!(form(NR).is_none(), "the call has an answer in the list") };
    // SAFETY: the caller's contract.
    unsafe { treated(const { skein_interpose::treatment(NR) }, NR, a) }
}

/// Makes a system call without an answer in the list: its row decides.
///
/// # Safety
/// The arguments are the server's for this call.
unsafe fn by_row(nr: i64, a: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe { treated(skein_interpose::treatment(nr), nr, a) }
}

#[inline(always)]
unsafe fn treated(treatment: Treatment, nr: i64, a: [usize; 6]) -> Result<usize> {
    match treatment {
        Treatment::Refused(errno) => refuse_call(nr, errno),
        Treatment::Absent(errno) => Err(Errno(errno)),
        Treatment::Constant(value) => {
            let _turn = turn::enter(Object::Machine, Kind::Ask);
            Ok(value)
        }
        // SAFETY: the caller's contract.
        Treatment::Ordered(_) => unsafe {
            let result = pass(sys::Call { nr, args: a });
            disk::settle(nr, a, &result);
            machine::settle(nr, &result);
            result
        },
        // `check` has found an answer for each of them.
        Treatment::Virtual | Treatment::Agreed | Treatment::Checked(_) => {
            refuse!("system call {nr} has no answer")
        }
    }
}

/// Lets the kernel answer a call, unless it names one of the runtime's own descriptors.
///
/// # Safety
/// The arguments are the server's for this call.
#[inline]
unsafe fn pass(call: sys::Call) -> Result<usize> {
    no_own(call.nr, &call.args)?;
    // SAFETY: the caller's contract; the table says that the call may be made.
    unsafe { call.make() }
}

/// Begins an operation on files. While libc creates a thread there is none: the turn must stay, and no other thread changes the data that libc then looks up for its memory.
#[inline]
fn on_files(kind: Kind) -> OnFiles {
    let creates = LOCAL.creates_thread.load(Ordering::Relaxed);
    OnFiles(if creates { kernel() } else { turn::enter(Object::Files, kind).kernel() })
}

/// An operation on files: lends the state, as [`turn::Turn`] does.
struct OnFiles(&'static Kernel);

impl Deref for OnFiles {
    type Target = Kernel;

    #[inline]
    fn deref(&self) -> &Kernel {
        self.0
    }
}

/// Answers a call with an error and tells the node its name.
#[cold]
fn refuse_call(nr: i64, errno: i32) -> Result<usize> {
    let _turn = turn::enter(Object::Machine, Kind::Refuse);
    match skein_interpose::name(nr) {
        Some(name) => refused(name.as_bytes()),
        None => refused(fatal::line!("system call {nr}").bytes()),
    }
    Err(Errno(errno))
}

/// How a call is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Always by the runtime.
    Whole,
    /// By the runtime or by the kernel, depending on the arguments.
    Part,
}

/// Defines the list; see [`list`] for how a line is read.
macro_rules! calls {
    ($(
        $nr:ident($($arg:ident: $ty:ty),* $(,)?)
        $(=> $whole:block)? $(if virtual $virtual:block)? $(else $kind:ident |$k:ident, $call:ident| $kernels:block)? $(else |$own:ident| $by_itself:block)?;
    )*) => {
        /// Every call of the list.
        pub(super) const ANSWERED: &[(i64, Form)] =
            &[$((number::$nr, calls!(@form $(=> $whole)?))),*];

        $(
            impl Syscall<{ number::$nr }> {
                #[inline(always)]
                #[allow(unused_variables, reason = "some calls are answered without looking at what they were asked")]
                #[allow(unreachable_code, clippy::diverging_sub_expression, reason = "some calls do not return")]
                #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe, reason = "some answers need no contract")]
                unsafe fn answer($($arg: $ty),*) -> Result<usize> {
                    // SAFETY: the caller's contract, which is that of the function that answers.
                    unsafe {
                        calls!(@answer number::$nr, [$($arg),*]; $(=> $whole)? $(if $virtual)? $(else $kind |$k, $call| $kernels)? $(else |$own| $by_itself)?)
                    }
                }

                /// Makes the call.
                ///
                /// # Safety
                /// The arguments are the server's for this call.
                #[inline(always)]
                pub unsafe fn make($($arg: $ty),*) -> Result<usize> {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let result = Self::answer($($arg),*);
                        disk::settle(number::$nr, sys::args([$($arg as usize),*]), &result);
                        result
                    }
                }
            }
        )*

        /// Makes a call of the list; `None` when it has none of this number.
        ///
        /// # Safety
        /// The arguments are the server's for this call.
        pub(super) unsafe fn answered(nr: i64, a: [usize; 6]) -> Option<Result<usize>> {
            Some(match nr {
                $(number::$nr => {
                    #[allow(unused_mut, unused_variables, reason = "some calls have no arguments")]
                    let mut words = a.into_iter();
                    $(let $arg = words.next().unwrap_or(0) as $ty;)*
                    // SAFETY: the caller's contract.
                    unsafe { Syscall::<{ number::$nr }>::make($($arg),*) }
                })*
                _ => return None,
            })
        }
    };
    (@form => $whole:block) => { Form::Whole };
    (@form) => { Form::Part };
    (@answer $nr:expr, $args:tt; => $whole:block) => { $whole };
    (@answer $nr:expr, [$($arg:ident),*]; $(if $virtual:block)? $(else $kind:ident |$k:ident, $call:ident| $kernels:block)? $(else |$own:ident| $by_itself:block)?) => {{
        $(
            let answer: Answer = $virtual;
            if let Some(result) = answer {
                return result;
            }
        )?
        let call = sys::Call { nr: $nr, args: sys::args([$($arg as usize),*]) };
        calls!(@kernels call $(, $kind |$k, $call| $kernels)? $(, |$own| $by_itself)?)
    }};
    (@kernels $made:ident) => { pass($made) };
    (@kernels $made:ident, $kind:ident |$k:ident, $call:ident| $kernels:block) => {{
        no_own($made.nr, &$made.args)?;
        let operation = on_files(Kind::$kind);
        let ($k, $call) = (&*operation, $made);
        $kernels
    }};
    (@kernels $made:ident, |$own:ident| $by_itself:block) => {{
        no_own($made.nr, &$made.args)?;
        let $own = $made;
        $by_itself
    }};
}
use calls;

/// Finds the form of a call in the list.
const fn form(nr: i64) -> Option<Form> {
    let mut at = 0;
    while at < list::ANSWERED.len() {
        if list::ANSWERED[at].0 == nr {
            return Some(list::ANSWERED[at].1);
        }
        at += 1;
    }
    None
}

/// Every row that needs an answer has one of the right form, and no other row has one; every answer is that of a row.
const fn check() {
    let (mut at, mut answers) = (0, 0);
    while at < SYSCALLS.len() {
        let row = &SYSCALLS[at];
        let form = form(row.nr as i64);
        let fits = match row.treatment {
            Treatment::Virtual | Treatment::Agreed => matches!(form, Some(Form::Whole)),
            Treatment::Checked(_) => matches!(form, Some(Form::Part)),
            _ => form.is_none(),
        };
        if !fits {
            panic!("{}", row.name);
        }
        if form.is_some() {
            answers += 1;
        }
        at += 1;
    }
    assert!(answers == list::ANSWERED.len(), "an answer to a call that has no row");
}
const _: () = check();
