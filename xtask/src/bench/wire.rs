//! Requests whose replies are known to the byte, for redis and memcached.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Which of the two servers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// redis-server, driven by redis-benchmark
    Redis,
    /// memcached with 4 threads, driven by an own closed loop
    Memcached,
}

impl Server {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// The command that serves at `port`.
    pub fn command(self, port: u16) -> Vec<String> {
        let port = port.to_string();
        let words: &[&str] = match self {
            Self::Redis => {
                &["redis-server", "--bind", "127.0.0.1", "--save", "", "--port", port.as_str()]
            }
            Self::Memcached => {
                &["memcached", "-u", "root", "-U", "0", "-l", "127.0.0.1", "-t", "4", "-p", &port]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Sets the value that `key` always has.
    pub fn set(self, key: u32) -> Exchange {
        let value = value(key);
        match self {
            Self::Redis => Exchange {
                request: format!(
                    "*3\r\n$3\r\nSET\r\n$14\r\nbench:{key:08}\r\n${}\r\n{value}\r\n",
                    value.len()
                ),
                reply: "+OK\r\n".to_owned(),
            },
            Self::Memcached => Exchange {
                request: format!("set bench:{key:08} 0 0 {}\r\n{value}\r\n", value.len()),
                reply: "STORED\r\n".to_owned(),
            },
        }
    }

    /// Reads `key`, which `set` has written before.
    pub fn get(self, key: u32) -> Exchange {
        let value = value(key);
        match self {
            Self::Redis => Exchange {
                request: format!("*2\r\n$3\r\nGET\r\n$14\r\nbench:{key:08}\r\n"),
                reply: format!("${}\r\n{value}\r\n", value.len()),
            },
            Self::Memcached => Exchange {
                request: format!("get bench:{key:08}\r\n"),
                reply: format!("VALUE bench:{key:08} 0 {}\r\n{value}\r\nEND\r\n", value.len()),
            },
        }
    }
}

/// 32 bytes that name the key.
fn value(key: u32) -> String {
    format!("{key:032x}")
}

/// One request and the only right reply.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// What is sent.
    pub request: String,
    /// What must come back.
    pub reply: String,
}

/// One blocking connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects; no step may take longer than `answer_max`.
    pub fn connect(service: SocketAddr, answer_max: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&service, answer_max)?;
        stream.set_read_timeout(Some(answer_max))?;
        stream.set_write_timeout(Some(answer_max))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Does one exchange; another reply than the right one is `InvalidData`.
    pub fn exchange(&mut self, exchange: &Exchange) -> io::Result<()> {
        self.stream.write_all(exchange.request.as_bytes())?;
        self.buffer.resize(exchange.reply.len(), 0);
        self.stream.read_exact(&mut self.buffer)?;
        if self.buffer == exchange.reply.as_bytes() {
            return Ok(());
        }
        let got = String::from_utf8_lossy(&self.buffer).escape_debug().to_string();
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("wrong reply: {got}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_requests_are_true() {
        let set = Server::Redis.set(7).request;
        let parts: Vec<&str> = set.split("\r\n").collect();
        assert_eq!(parts[3], format!("${}", parts[4].len()));
        assert_eq!(parts[5], format!("${}", parts[6].len()));
        let set = Server::Memcached.set(7).request;
        let (line, value) = set.split_once("\r\n").expect("two lines");
        let told: usize = line.rsplit(' ').next().expect("a length").parse().expect("a number");
        assert_eq!(told, value.trim_end().len());
    }

    #[test]
    fn another_reply_than_the_right_one_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let service = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.write_all(b"-ERR\r\n");
            let _ = stream.read(&mut [0; 256]);
        });
        let mut client = Client::connect(service, Duration::from_secs(5)).expect("connected");
        let error = client.exchange(&Server::Redis.set(1)).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(client);
        server.join().expect("ended");
    }
}
