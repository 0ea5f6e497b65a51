//! redis' protocol, as much as asking and comparing needs: one blocking connection, any command, any reply.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wire::connect;

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and the like.
    Simple(String),
    /// `-ERR ...`: the server refuses.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes, or nothing.
    Bulk(Option<Vec<u8>>),
    /// Several.
    Array(Vec<Reply>),
}

/// One connection.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects; a reply may take `answer_max`.
    pub fn open(service: SocketAddr, answer_max: Duration) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(connect(service, answer_max)?) })
    }

    /// One command, one reply.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(&request(words))?;
        self.hear()
    }

    /// Sends what [`request`] made.
    pub fn send(&mut self, request: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Reads one reply.
    pub fn hear(&mut self) -> io::Result<Reply> {
        read(&mut self.stream)
    }
}

/// A command as it is sent.
pub fn request(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text
}

fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let wrong = |line: &str| {
        let say = format!("not redis' protocol: {}", line.escape_debug());
        io::Error::new(io::ErrorKind::InvalidData, say)
    };
    let mut line = String::new();
    from.read_line(&mut line)?;
    let Some(text) = line.strip_suffix("\r\n") else {
        return Err(if line.is_empty() {
            io::ErrorKind::UnexpectedEof.into()
        } else {
            wrong(&line)
        });
    };
    let (kind, rest) = text.split_at_checked(1).ok_or_else(|| wrong(&line))?;
    let number = || rest.parse::<i64>().map_err(|_| wrong(&line));
    Ok(match kind {
        "+" => Reply::Simple(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => Reply::Bulk(None),
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bulk(Some(bytes))
            }
        },
        "*" => {
            let count = usize::try_from(number()?).unwrap_or(0);
            Reply::Array((0..count).map(|_| read(from)).collect::<io::Result<_>>()?)
        }
        _ => return Err(wrong(&line)),
    })
}

impl Reply {
    /// Its text, where it is one.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) => Some(text.clone()),
            Self::Bulk(Some(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> io::Result<Reply> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(parse("+OK\r\n").expect("simple"), Reply::Simple("OK".to_owned()));
        assert_eq!(parse(":2\r\n").expect("number"), Reply::Integer(2));
        assert_eq!(parse("$-1\r\n").expect("nothing"), Reply::Bulk(None));
        let both = parse("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6\r\n7\r\n").expect("an array");
        let Reply::Array(parts) = both else { panic!("an array") };
        assert_eq!(parts[0].text().as_deref(), Some("127.0.0.1"));
        assert_eq!(parts[1].text().as_deref(), Some("6\r\n7"));
        let refused = parse("-READONLY You can't write\r\n").expect("an error");
        assert!(matches!(refused, Reply::Error(text) if text.starts_with("READONLY")));
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for text in ["", "+OK", "HTTP/1.1 400\r\n", "\r\n", "$5\r\nab\r\n", ":x\r\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_command_is_written_with_its_lengths() {
        assert_eq!(request(&["GET", "k1"]), "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n");
    }
}
