//! Shared by blocking clients of line protocols: a connection with limits, and its lines.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest line of an answer: 64 KiB.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A connection; neither it nor any step on it may take longer than `patience`.
///
/// # Errors
/// The service cannot be reached.
pub fn connect(service: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    limited(TcpStream::connect_timeout(&service, patience)?, patience)
}

/// The same limits for an existing connection.
///
/// # Errors
/// The connection takes no options.
pub fn limited(stream: TcpStream, patience: Duration) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// [`connect`] to a port of this machine, to read lines from.
///
/// # Errors
/// The port cannot be reached.
pub fn connect_port(port: u16, patience: Duration) -> io::Result<BufReader<TcpStream>> {
    Ok(BufReader::new(connect(SocketAddr::from(([127, 0, 0, 1], port)), patience)?))
}

/// A line that ended with `\r\n`, without these.
///
/// # Errors
/// `UnexpectedEof` if the connection ends first; `InvalidData` for a line that is too long or no text.
pub fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    let read = from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(whole) => Ok(whole.to_owned()),
        None if read as u64 == LINE_BYTES_MAX || line.ends_with('\n') => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"))
        }
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
