//! Shared by web servers' tests: a tree of pages, uploads that are remembered while the leader dies, the usual load tools.

use std::fs;
use std::path::Path;

use super::Place;
use super::cluster::wait_for_or;
use super::http::Http;
use super::real::{ANSWER, Random, Real};
use super::story::{Books, PATIENCE_OF_A_CLIENT, kill_leader, tool_with_code, under_load};
use super::wait_for;

/// Clients that upload and read at once.
const CLIENTS: usize = 12;
/// Requests before and after the leader's death.
const REQUESTS: u64 = 600;
const PAGES: u64 = 20;
/// Leaders that may follow one another while a tool runs.
const MOST_TERMS: usize = 5;

/// A page's text, the same at every call.
pub fn page(number: u64) -> String {
    let mut random = Random::new(number);
    let lines = 1 + random.below(400);
    (0..lines)
        .map(|line| format!("page {number}, line {line}: {}\n", random.below(1 << 30)))
        .collect()
}

/// A directory `www` with pages, and `www/up`, which the server's user may write.
pub fn tree(place: &Place) {
    for dir in ["www", "www/up", "log"] {
        fs::create_dir(place.path(dir)).unwrap();
        open_to_all(&place.path(dir));
    }
    for number in 0..PAGES {
        place.file(&format!("www/{number}.txt"), &page(number), 0o644);
    }
}

/// nginx with Debian's configuration but for the paths and the number of workers; `servers` goes into its `http`.
#[track_caller]
pub fn nginx(place: Place, port: u16, servers: &str) -> Real {
    nginx_with(&[], place, port, servers)
}

/// The same with options of `skein run`.
#[track_caller]
pub fn nginx_with(options: &[&str], place: Place, port: u16, servers: &str) -> Real {
    let path = |name: &str| place.path(name).to_str().unwrap().to_string();
    let config = format!(
        "user www-data;
worker_processes 2;
pid {pid};
error_log {log}/error.log;
include /etc/nginx/modules-enabled/*.conf;
events {{ worker_connections 768; }}
http {{
    sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log {log}/access.log;
    gzip on;
    client_body_temp_path {log}/body;
    {servers}
}}
",
        pid = path("nginx.pid"),
        log = path("log"),
    );
    let config = place.file("nginx.conf", &config, 0o644).to_str().unwrap().to_string();
    let words = ["/usr/sbin/nginx", "-c", &config, "-g", "daemon off;"];
    Real::serve(place, port, options, words.map(String::from).to_vec())
}

/// Lets everybody write.
pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// Pages, and a directory where clients may put others.
pub fn pages_and_uploads(place: &Place, port: u16) -> String {
    let www = place.path("www");
    format!(
        "server {{ listen 127.0.0.1:{port}; root {}; location /up/ {{ dav_methods PUT DELETE; }} }}",
        www.display()
    )
}

/// Clients read pages and upload small ones while the leader dies: every answered upload is there afterwards.
#[track_caller]
pub fn uploads_survive(real: &Real) -> Books {
    let books = uploads(real, || kill_leader(real));
    let (index, digest) = real.wait_agreed();
    println!("all replicas have digest {digest} at {index}");
    assert_uploads(real, &books);
    books
}

/// Clients read pages and upload small ones while `blow` happens.
#[track_caller]
pub fn uploads(real: &Real, blow: impl FnOnce()) -> Books {
    let port = real.port();
    let ask = |http: &mut Http, word: &str| {
        let number = word.bytes().map(u64::from).sum::<u64>() % PAGES;
        let answer = http.get(&format!("/{number}.txt"))?;
        assert_eq!((answer.status, answer.text()), (200, page(number)), "{:?}", answer.head);
        let path = format!("/up/{word}");
        let answer = http.ask("PUT", &path, word.repeat(20).as_bytes())?;
        assert!([201, 204].contains(&answer.status), "{answer:?}");
        let answer = http.get(&path)?;
        assert_eq!((answer.status, answer.text()), (200, word.repeat(20)));
        Ok(())
    };
    // Servers may end a kept connection at any time: the outcome of that request is unknown, no more.
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    under_load(real, CLIENTS, REQUESTS, connect, ask, blow)
}

/// Every answered upload is there.
#[track_caller]
pub fn assert_uploads(real: &Real, books: &Books) {
    let connect = || wait_for("a connection", || Http::connect(real.port(), ANSWER).ok());
    let mut http = connect();
    for word in &books.kept {
        let path = format!("/up/{word}");
        let answer = http.get(&path).unwrap_or_else(|_| {
            http = connect();
            http.get(&path).unwrap()
        });
        assert_eq!((answer.status, answer.text()), (200, word.repeat(20)), "{word} is lost");
    }
}

/// `ab` and `wrk` on a page.
#[track_caller]
pub fn usual_tools(real: &Real, path: &str) {
    let url = format!("http://127.0.0.1:{}{path}", real.port());
    for keep in [&["-k"][..], &[]] {
        let args = [&["-q", "-n", "1000", "-c", "20"], keep, &[&url]].concat();
        in_one_term(real, "ab", &args, |report| {
            report.contains("Complete requests:      1000")
                && report.contains("Failed requests:        0")
        });
    }
    in_one_term(real, "wrk", &["-t", "2", "-c", "20", "-d", "1s", &url], |report| {
        report.contains("Requests/sec") && !report.contains("Socket errors")
    });
}

/// Runs a tool that gives up when a connection breaks, as connections do when another replica leads. That may happen on a busy host: only then does the tool begin again.
#[track_caller]
fn in_one_term(real: &Real, program: &str, args: &[&str], is_fine: impl Fn(&str) -> bool) {
    let term = || {
        let told = || real.cluster.status().0["term"].as_u64().filter(|term| *term > 0);
        wait_for_or("a term", || real.cluster.evidence(), told)
    };
    for _ in 0..MOST_TERMS {
        let before = term();
        let (report, code) = tool_with_code(program, args);
        assert!(!report.contains("Non-2xx"), "{report}");
        if code == Some(0) && is_fine(&report) {
            return;
        }
        let evidence =
            || format!("{program} {args:?}: {code:?}\n{report}\n{}", real.cluster.evidence());
        wait_for_or("another term, which would excuse this", evidence, || {
            (term() > before).then_some(())
        });
    }
    panic!("{MOST_TERMS} terms began while {program} ran\n{}", real.cluster.evidence());
}
