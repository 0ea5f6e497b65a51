//! The end of a server that cannot be kept deterministic: reported to the node, never silent.
//!
//! The way to tell the node is given at the start ([`give_teller`]), because everything that can fail is below that.

use crate::local::{self, LOCAL};
use crate::sys;
use core::fmt::Write;
use core::sync::atomic::Ordering;

/// A line of text without allocation; the excess is cut.
pub struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }

    /// Adds bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    /// The text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        self.append(s.as_bytes());
        Ok(())
    }
}

/// Formats into a [`Line`].
macro_rules! line {
    ($($arg:tt)*) => {{
        let mut line = $crate::fatal::Line::new();
        let _ = core::fmt::Write::write_fmt(&mut line, format_args!($($arg)*));
        line
    }};
}
pub(crate) use line;

/// A message to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// The server ends.
    Fatal,
    /// A call was answered with an error.
    Refused,
    /// A line for its log.
    Notice,
}

/// Tells the node.
type Teller = fn(Telling, &[u8]);

/// From now on `teller` tells the node.
pub fn give_teller(teller: Teller) {
    LOCAL.teller.store(teller as usize, Ordering::Relaxed);
}

fn tell(what: Telling, text: &[u8]) {
    let teller = LOCAL.teller.load(Ordering::Relaxed);
    if teller != 0 && local::ready() {
        // SAFETY: `give_teller` has stored a function of this type.
        unsafe { core::mem::transmute::<usize, Teller>(teller)(what, text) };
    }
}

/// Stops the server: tells the node (and stderr) why, then ends the process.
pub fn fatal(text: &[u8]) -> ! {
    tell(Telling::Fatal, text);
    stderr(text);
    // 125: Skein's own error.
    sys::exit_group(125)
}

/// Writes a line to the server's standard error.
pub fn stderr(text: &[u8]) {
    for part in [b"skein: ", text, b"\n"] {
        // SAFETY: the buffer is valid for its length.
        unsafe {
            sys::raw(libc::SYS_write, sys::args([2, part.as_ptr() as usize, part.len()]));
        }
    }
}

/// Ends the server with a formatted reason.
macro_rules! refuse {
    ($($arg:tt)*) => { $crate::fatal::fatal($crate::fatal::line!($($arg)*).bytes()) };
}
pub(crate) use refuse;

/// Reports to the node that a call was answered with an error because Skein does not support it, and its calling place.
#[inline(never)]
pub fn refused(call: &[u8]) {
    tell(Telling::Refused, call);
}

/// A line for the node's log.
pub fn notice(text: &[u8]) {
    tell(Telling::Notice, text);
}
