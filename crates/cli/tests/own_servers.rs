//! Servers of this repository on three replicas while the leader dies, and from images: Rust's standard library with a thread a connection, C++'s
//! threads, libevent; processes that fork all the time.

mod common;

use common::cluster::{Cluster, free_port};
use common::http::Http;
use common::own::{Lines, compiled, start};
use common::real::{ANSWER, Real};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load, under_load};
use common::{Place, wait_for};
use serde_json::Value;

const CLIENTS: usize = 16;
/// Requests before and after the leader's death.
const REQUESTS: u64 = 1_000;

/// Clients that add words to a server that keeps them.
fn words(source: &str, more: &[&str]) {
    let real = start(source, &[]);
    let port = real.port();
    let add = |lines: &mut Lines, word: &str| {
        let answer = lines.ask(&format!("add {word}"))?;
        assert!(answer.starts_with("ok "), "{answer}");
        for line in more {
            // Results of chance and time are in the answer: the digests cover them.
            lines.ask(&line.replace("WORD", word))?;
        }
        Ok(())
    };
    let connect = || Lines::connect(port, PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, REQUESTS, connect, add);
    let all = wait_for("an answer", || Lines::connect(port, ANSWER).ok()?.ask("all").ok());
    let found: Vec<String> = all.split(' ').map(str::to_string).collect();
    books.assert_found(&found);
    real.continue_a_follower_with_a_client(|| Lines::connect(port, ANSWER), add);
    real.end();
}

#[test]
fn the_standard_library_of_rust() {
    words("words_threads.rs", &["has WORD", "any"]);
}

#[test]
fn libevent() {
    words("words_libevent.c", &[]);
}

/// Processes come and go all the time, and images are taken meanwhile, each of them from copies of all processes: the kernel is not asked which pages were written.
#[test]
fn a_server_that_forks_for_each_request_has_images_under_load() {
    const IMAGES: usize = 6;
    const CLIENTS: usize = 4;
    let (place, port) = (Place::new(), free_port());
    let server = compiled(&place, "forks.c");
    let mut command = place.skein_with_runtime();
    command.env("SKEIN_COMPARE_PAGES", "1");
    command.args(["run", "--name", "t", "--data", &place.data(), "--"]).arg(server);
    let real = Real::around(Cluster::spawn(place, port, command.arg(port.to_string())));
    real.cluster.wait_ready();
    let add = |lines: &mut Lines, word: &str| {
        let answer = lines.ask(&format!("add {word}"))?;
        assert!(answer.starts_with("ok "), "{answer}");
        Ok(())
    };
    let connect = || Lines::connect(port, PATIENCE_OF_A_CLIENT);
    let follower = Cluster::leader(&real.cluster.wait_status(0)).0 % 3 + 1;
    let take = || {
        let taken: Vec<Value> = (0..IMAGES).map(|_| real.take_image(follower)).collect();
        assert!(taken.iter().all(|image| image["how"] == "fork"), "{taken:?}");
        // The first one, and one for each client that is connected, and perhaps those of requests.
        let image = real.images(follower).unwrap().pop().unwrap();
        assert!(image["processes"].as_u64() > Some(CLIENTS as u64 / 2), "{image}");
    };
    let books = under_load(&real, CLIENTS, REQUESTS / 5, connect, add, take);
    let all = wait_for("an answer", || Lines::connect(port, ANSWER).ok()?.ask("all").ok());
    books.assert_found(&all.split(' ').map(str::to_string).collect::<Vec<_>>());
    real.continue_a_follower_with_a_client(|| Lines::connect(port, ANSWER), add);
    real.end();
}

#[test]
fn threads_of_cpp() {
    let real = start("page_threads.cc", &[]);
    let port = real.port();
    // Each page repeats one letter: an answer may be made of such pages only.
    let ask = |http: &mut Http, word: &str| {
        if word.ends_with(['0', '4', '8']) {
            let letter = b'a' + word.as_bytes()[word.len() - 2] % 26;
            assert_eq!(http.ask("PUT", "/page", &[letter; 256])?.status, 200);
        } else {
            let answer = http.get("/page")?;
            let known = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'-';
            assert!(answer.status == 200 && answer.body.iter().all(known), "{answer:?}");
        }
        Ok(())
    };
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    leader_dies_under_load(&real, CLIENTS, REQUESTS / 2, connect, ask);
    real.continue_a_follower_with_a_client(|| Http::connect(port, ANSWER), ask);
    real.end();
}
