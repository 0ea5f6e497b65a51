//! nginx from Debian as a proxy on three replicas, in front of a service outside that is not replicated: each request reaches
//! the service once, whoever leads, and the replicas stay identical when the leader dies under load.

mod common;

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::cluster::{Cluster, free_port};
use common::real::{Real, at_once};
use common::{Place, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const CLIENTS: usize = 12;
const REQUESTS: usize = 200;
/// Answers before and after the leader's death.
const ANSWERED: u64 = 500;

/// A service that answers `GET /WHAT` with `you asked for WHAT` and remembers its requests.
struct Service {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&asked);
        // Both kinds of threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                // A broken connection is the proxy's concern.
                std::thread::spawn(move || drop(serve(&stream, &all)));
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: &TcpStream, asked: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut path = None;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end() {
                "" => break,
                line => path = path.or(line.split(' ').nth(1).map(str::to_string)),
            }
        }
        let path = path.unwrap_or_default();
        let body = format!("you asked for {path}");
        asked.lock().unwrap().push(path);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes())?;
    }
}

/// nginx in one process in front of the service.
fn proxy(service: &Service) -> Real {
    let place = Place::new();
    let port = free_port();
    let dir = place.dir.path().display();
    let config = format!(
        "daemon off; master_process off; error_log stderr warn; pid {dir}/pid;
         events {{ worker_connections 512; }}
         http {{
           access_log off;
           client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
           uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
           upstream service {{ server 127.0.0.1:{}; keepalive 4; }}
           server {{
             listen {port};
             location / {{
               proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\";
               proxy_next_upstream off;
             }}
           }}
         }}",
        service.port
    );
    let config = place.file("nginx.conf", &config, 0o644);
    let server = ["/usr/sbin/nginx", "-c", config.to_str().unwrap()];
    Real::serve(place, port, &[], server.map(String::from).to_vec())
}

/// One request on a connection of its own: the status and the body; `None` when the connection broke.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, body.to_string()))
}

#[test]
fn each_request_reaches_the_service_once() {
    let service = Service::start();
    let real = proxy(&service);
    at_once(CLIENTS, |me| {
        for number in 0..REQUESTS {
            let path = format!("/{me}/{number}");
            let answer = get(real.port(), &path);
            assert_eq!(answer, Some((200, format!("you asked for {path}"))));
        }
    });
    let asked = service.asked();
    assert_eq!(asked.len(), CLIENTS * REQUESTS);
    assert_eq!(asked.iter().collect::<HashSet<_>>().len(), asked.len(), "none twice");
    real.end();
}

#[test]
fn the_leader_dies_under_load() {
    let service = Service::start();
    let real = proxy(&service);
    let (ended, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let more = || {
        let wanted = answered.load(Ordering::Relaxed) + ANSWERED;
        wait_for("answers", || (answered.load(Ordering::Relaxed) >= wanted).then_some(()));
    };
    let (good, bad) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|me| {
                let (real, ended, answered) = (&real, &ended, &answered);
                scope.spawn(move || {
                    let (mut good, mut bad) = (Vec::new(), 0);
                    for number in 0.. {
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                        let path = format!("/{me}/{number}");
                        match get(real.port(), &path) {
                            Some((200, body)) => {
                                assert_eq!(body, format!("you asked for {path}"));
                                answered.fetch_add(1, Ordering::Relaxed);
                                good.push(path);
                            }
                            Some((status, _)) => {
                                assert_eq!(status, 502, "the connection to the service was lost");
                                bad += 1;
                            }
                            None => bad += 1,
                        }
                    }
                    (good, bad)
                })
            })
            .collect();
        more();
        for _ in 0..2 {
            let (_, leader) = Cluster::leader(&real.cluster.wait_status(0));
            kill(Pid::from_raw(leader), Signal::SIGKILL).unwrap();
            more();
        }
        ended.store(true, Ordering::Relaxed);
        let mut all = (Vec::new(), 0);
        for client in clients {
            let (good, bad) = client.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            all.0.extend(good);
            all.1 += bad;
        }
        all
    });
    let asked = service.asked();
    let once: HashSet<_> = asked.iter().collect();
    assert_eq!(once.len(), asked.len(), "no request reached the service twice");
    assert!(good.iter().all(|path| once.contains(path)), "an answer without a request");
    assert!(bad <= 3 * CLIENTS * 2, "{bad} requests failed, {} were answered", good.len());
    real.end();
}
