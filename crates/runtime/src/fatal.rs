//! The end of a server that cannot be kept deterministic: named to the node, never silent.

use crate::{kernel, origin, output, sys};
use core::fmt::Write;
use skein_model::OutFrame;

/// A line of text without allocation; what does not fit is cut.
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

/// Refuses to go on: tells the node (and stderr) why, then ends the process.
pub fn fatal(text: &[u8]) -> ! {
    if kernel::ready() {
        output::emit(OutFrame::Fatal { text });
        output::wake_node();
    }
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

/// Tells the node that a call was answered with an error because Skein does not support it, and where the server made it.
#[inline(never)]
pub fn refused(call: &[u8]) {
    if kernel::ready() {
        let mut text = Line::new();
        text.append(call);
        text.append(&[0]);
        origin::append_caller(&mut text);
        output::emit(OutFrame::Refused { call: text.bytes() });
    }
}

/// A line for the node's log.
pub fn notice(text: &[u8]) {
    if kernel::ready() {
        output::emit(OutFrame::Notice { text });
    }
}
