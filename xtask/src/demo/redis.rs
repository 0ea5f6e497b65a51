//! Just enough of redis' protocol to set and get.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before the connection counts as dead.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The longest value that is read back.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// One connection.
pub struct Client<S = TcpStream> {
    stream: BufReader<S>,
}

impl Client {
    /// Connects to the service.
    pub fn connect(service: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&service, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }
}

impl<S: Read + Write> Client<S> {
    /// Sets `key`; `Ok` means acknowledged.
    pub fn set(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.send(&["SET", key, value])?;
        match self.line()?.as_str() {
            "+OK" => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// The value of `key`.
    pub fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.send(&["GET", key])?;
        let head = self.line()?;
        if head == "$-1" {
            return Ok(None);
        }
        let bytes = head.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let bytes = bytes.filter(|bytes| *bytes <= VALUE_BYTES_MAX);
        let mut value = vec![0; bytes.ok_or_else(|| unexpected(&head))? + "\r\n".len()];
        self.stream.read_exact(&mut value)?;
        value.truncate(value.len() - "\r\n".len());
        Ok(Some(value))
    }

    fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.by_ref().take(1024).read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(whole) => Ok(whole.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn unexpected(answer: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected answer {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that has already answered, and keeps what it is sent.
    struct Scripted {
        answers: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
    }

    impl Read for Scripted {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.answers.read(to)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(answers: &str) -> Client<Scripted> {
        let answers = io::Cursor::new(answers.as_bytes().to_vec());
        Client { stream: BufReader::new(Scripted { answers, sent: Vec::new() }) }
    }

    #[test]
    fn requests_and_answers_are_in_redis_form() {
        let mut client = client("+OK\r\n$3\r\na\r\n\r\n$-1\r\n");
        client.set("k", "a\r\n").expect("acknowledged");
        assert_eq!(client.stream.get_ref().sent, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\n");
        assert_eq!(client.get("k").expect("a value").as_deref(), Some(&b"a\r\n"[..]));
        assert_eq!(client.get("k").expect("no value"), None);
    }

    #[test]
    fn anything_else_is_no_acknowledgement() {
        assert!(client("-ERR no\r\n").set("k", "v").is_err());
        assert!(client("+OK").set("k", "v").is_err(), "cut off before the end of the line");
        assert!(client("").get("k").is_err());
        assert!(client("$99999999999\r\n").get("k").is_err());
    }
}
