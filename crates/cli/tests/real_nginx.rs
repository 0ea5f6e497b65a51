//! nginx from Debian on three replicas, with two worker processes: static files, uploads, TLS, and as a proxy in front of another
//! replicated server, while leaders die.

mod common;

use common::Place;
use common::cluster::free_port;
use common::http::Http;
use common::own;
use common::story::{PATIENCE_OF_A_CLIENT, kill_leader, leader_dies_under_load, tool};
use common::web::{nginx, page, pages_and_uploads, tree, uploads_survive, usual_tools};

#[test]
fn uploads_survive_the_leader() {
    let (place, port) = (Place::new(), free_port());
    tree(&place);
    let servers = pages_and_uploads(&place, port);
    let real = nginx(place, port, &servers);
    usual_tools(&real, "/3.txt");
    uploads_survive(&real);
    usual_tools(&real, "/4.txt");
    real.continue_a_follower_from_an_image(|| usual_tools(&real, "/3.txt"));
    real.end();
}

#[test]
fn tls_survives_the_leader() {
    let (place, port) = (Place::new(), free_port());
    tree(&place);
    let path = |name: &str| place.path(name).to_str().unwrap().to_string();
    let (key, cert) = (path("key.pem"), path("cert.pem"));
    let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost";
    let mut args: Vec<&str> = request.split(' ').collect();
    args.extend(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", &key, "-out", &cert]);
    tool("openssl", &args);
    let www = path("www");
    let servers = format!(
        "server {{ listen 127.0.0.1:{port} ssl; root {www};
        ssl_certificate {cert}; ssl_certificate_key {key}; }}"
    );
    let real = nginx(place, port, &servers);
    let get = |number: u64| {
        let url = format!("https://127.0.0.1:{port}/{number}.txt");
        let args = ["-s", "-S", "--retry", "20", "--retry-all-errors", "--retry-delay", "1"];
        tool("curl", &[&args[..], &["--cacert", &cert, &url]].concat())
    };
    for number in 0..10 {
        assert_eq!(get(number), page(number));
    }
    let url = format!("https://127.0.0.1:{port}/5.txt");
    let report = tool("ab", &["-q", "-n", "300", "-c", "10", &url]);
    assert!(report.contains("Failed requests:        0"), "{report}");
    kill_leader(&real);
    // Another replica has made the same keys from the same random numbers.
    for number in 0..10 {
        assert_eq!(get(number), page(number));
    }
    real.wait_agreed();
    real.end();
}

#[test]
fn a_proxy_survives_its_leader_and_its_backend() {
    let backend = own::start("page_threads.cc", &[]);
    let (place, port) = (Place::new(), free_port());
    tree(&place);
    let servers = format!(
        "upstream pages {{ server 127.0.0.1:{}; keepalive 8; }}
    server {{ listen 127.0.0.1:{port};
        location / {{ proxy_pass http://pages; proxy_http_version 1.1; proxy_set_header Connection ''; }} }}",
        backend.port()
    );
    let real = nginx(place, port, &servers);
    let ask = |http: &mut Http, word: &str| {
        // 502, 504: the backend's connections have ended with its leader.
        let retry = |status: u16| match status {
            502 | 504 => Err(std::io::Error::other("the backend is away")),
            _ => {
                assert_eq!(status, 200);
                Ok(())
            }
        };
        if word.ends_with('0') {
            return retry(http.ask("PUT", "/page", &[b'a'; 256])?.status);
        }
        let answer = http.get("/page")?;
        retry(answer.status)?;
        assert!(answer.body.iter().all(|byte| matches!(byte, b'a' | b'-')), "{answer:?}");
        Ok(())
    };
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    leader_dies_under_load(&real, 8, 200, connect, ask);
    kill_leader(&backend);
    leader_dies_under_load(&real, 8, 200, connect, ask);
    backend.wait_agreed();
    real.end();
    backend.end();
}
