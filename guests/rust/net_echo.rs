//! Rust's standard library network and time: a TcpListener with a thread a connection on loopback, time-outs, Instant,
//! SystemTime and sleep. Clock values go to standard error.
//!
//! expect: same

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

fn serve(listener: TcpListener, connections: usize) {
    let threads: Vec<_> = listener
        .incoming()
        .take(connections)
        .map(|stream| {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    stream.write_all(format!("{}\n", line.unwrap().to_uppercase()).as_bytes()).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(listener, 3));
    let clients: Vec<_> = (0..3)
        .map(|id| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                assert_eq!(stream.peer_addr().unwrap(), address);
                writeln!(stream, "hello {id}").unwrap();
                writeln!(stream, "bye {id}").unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                text
            })
        })
        .collect();
    for client in clients {
        print!("{}", client.join().unwrap());
    }
    server.join().unwrap();

    let listener = TcpListener::bind("[::1]:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_peer, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let start = Instant::now();
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(19));
    println!("read timed out");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(listener);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    println!("connect refused {}", TcpStream::connect(closed).unwrap_err().kind() == ErrorKind::ConnectionRefused);

    let start = Instant::now();
    thread::sleep(Duration::from_millis(30));
    assert!(start.elapsed() >= Duration::from_millis(30));
    eprintln!("elapsed {:?}, now {:?}", start.elapsed(), SystemTime::now());
    println!("slept");
}
