//! haproxy from Debian on three replicas, with two threads: pages of its own, statistics, and as a proxy in front of another
//! replicated server, while the leader dies.

mod common;

use common::Place;
use common::cluster::free_port;
use common::http::Http;
use common::own::{self, Lines};
use common::real::{ANSWER, Real, at_once};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load};
use common::wait_for;
use common::web::usual_tools;

fn start(port: u16, frontends: &str) -> Real {
    let place = Place::new();
    let config = format!(
        "global
    maxconn 500
    nbthread 2
defaults
    timeout connect 5s
    timeout client 50s
    timeout server 50s
{frontends}"
    );
    let config = place.file("haproxy.cfg", &config, 0o644).to_str().unwrap().to_string();
    let words = ["/usr/sbin/haproxy", "-db", "-f", &config];
    Real::serve(place, port, &[], words.map(String::from).to_vec())
}

#[test]
fn pages_of_its_own() {
    let port = free_port();
    // Its answers contain time, chance and identity.
    let page = "\"%[rand(1000)] %[date] %[uuid] %[src_port]\\n\"";
    let frontend = format!(
        "frontend own
    mode http
    bind 127.0.0.1:{port}
    stats enable
    stats uri /stats
    http-request return status 200 content-type text/plain lf-string {page} if {{ path /any }}
    http-request return status 200 content-type text/plain string fixed if {{ path /fixed }}
"
    );
    let real = start(port, &frontend);
    usual_tools(&real, "/fixed");
    let ask = |http: &mut Http, _: &str| {
        let answer = http.get("/any")?;
        assert_eq!((answer.status, answer.text().split(' ').count()), (200, 4), "{answer:?}");
        Ok(())
    };
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    leader_dies_under_load(&real, 16, 1000, connect, ask);
    let pages = at_once(4, |_| {
        let mut http = wait_for("a connection", || Http::connect(port, ANSWER).ok());
        http.get("/stats").unwrap().text()
    });
    assert!(pages.iter().all(|page| page.contains("Statistics Report")), "{}", pages[0]);
    real.continue_a_follower_with_a_client(|| Http::connect(port, ANSWER), ask);
    real.end();
}

#[test]
fn what_went_through_it_survives_its_leader() {
    let backend = own::start("words_threads.rs", &[]);
    let (port, to) = (free_port(), backend.port());
    let real = start(
        port,
        &format!(
            "listen words\n    mode tcp\n    bind 127.0.0.1:{port}\n    server one 127.0.0.1:{to}\n"
        ),
    );
    let add = |lines: &mut Lines, word: &str| {
        let answer = lines.ask(&format!("add {word}"))?;
        assert!(answer.starts_with("ok "), "{answer}");
        Ok(())
    };
    let connect = || Lines::connect(port, PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, 8, 500, connect, add);
    let all = wait_for("an answer", || Lines::connect(port, ANSWER).ok()?.ask("all").ok());
    books.assert_found(&all.split(' ').map(str::to_string).collect::<Vec<_>>());
    backend.wait_agreed();
    // The image has a client's connection, and one to the other server, which both live on.
    real.continue_a_follower_with_a_client(|| Lines::connect(port, ANSWER), add);
    real.end();
    backend.end();
}
