//! lighttpd from Debian on three replicas: static files, CGI, FastCGI over a UNIX socket, while the leader dies.

mod common;

use common::Place;
use common::cluster::free_port;
use common::http::Http;
use common::own::compiled;
use common::real::{ANSWER, Real};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load};
use common::web::{open_to_all, page, tree, usual_tools};

/// A script that stores its requests: one line each in a file shared by all its runs.
const SCRIPT: &str = "#!/bin/sh
echo 'Content-Type: text/plain'
echo
case $QUERY_STRING in
all) cat ../kept/words ;;
*)
    echo \"$QUERY_STRING\" >> ../kept/words
    echo \"ok $$ $(date +%s%N) $(wc -l < ../kept/words)\" ;;
esac
";

fn start() -> Real {
    let (place, port) = (Place::new(), free_port());
    tree(&place);
    let path = |name: &str| place.path(name).to_str().unwrap().to_string();
    for dir in ["cgi", "kept"] {
        std::fs::create_dir(place.path(dir)).unwrap();
    }
    open_to_all(&place.path("kept"));
    place.file("cgi/words", SCRIPT, 0o755);
    let responder = compiled(&place, "fastcgi_words.c");
    let responder = format!("{} {}/words", responder.display(), path("kept"));
    let lines = [
        "server.modules = (\"mod_access\", \"mod_alias\", \"mod_accesslog\", \"mod_cgi\", \"mod_fastcgi\")".into(),
        format!("server.document-root = \"{}\"", path("www")),
        format!("server.errorlog = \"{}/error.log\"", path("log")),
        format!("accesslog.filename = \"{}/access.log\"", path("log")),
        format!("server.pid-file = \"{}/lighttpd.pid\"", path("log")),
        "server.username = \"www-data\"".into(),
        "server.groupname = \"www-data\"".into(),
        format!("server.port = {port}"),
        "server.bind = \"127.0.0.1\"".into(),
        "server.max-keep-alive-requests = 1000000".into(),
        "include_shell \"/usr/share/lighttpd/create-mime.conf.pl\"".into(),
        format!("alias.url = (\"/cgi/\" => \"{}/\")", path("cgi")),
        "$HTTP[\"url\"] =~ \"^/cgi/\" { cgi.assign = (\"\" => \"\") }".into(),
        // Two processes that it starts by itself, a socket each.
        format!(
            "fastcgi.server = (\"/fcgi/\" => ((\"bin-path\" => \"{responder}\", \"max-procs\" => 2, \
             \"socket\" => \"{}/fcgi\", \"check-local\" => \"disable\")))",
            path("log")
        ),
    ];
    let config = place.file("lighttpd.conf", &(lines.join("\n") + "\n"), 0o644);
    let config = config.to_str().unwrap().to_string();
    let words = ["/usr/sbin/lighttpd", "-D", "-f", &config];
    Real::serve(place, port, &[], words.map(String::from).to_vec())
}

#[test]
fn pages_are_read_while_the_leader_dies() {
    let real = start();
    let port = real.port();
    usual_tools(&real, "/3.txt");
    let ask = |http: &mut Http, word: &str| {
        let number = word.bytes().map(u64::from).sum::<u64>() % 20;
        let answer = http.get(&format!("/{number}.txt"))?;
        assert_eq!((answer.status, answer.text()), (200, page(number)));
        assert!(answer.header("Content-Type").is_some_and(|kind| kind.starts_with("text/plain")));
        Ok(())
    };
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    leader_dies_under_load(&real, 16, 1000, connect, ask);
    real.end();
}

#[test]
fn what_scripts_wrote_survives_the_leader() {
    written_words_survive("/cgi/words");
}

#[test]
fn what_a_fastcgi_responder_wrote_survives_the_leader() {
    written_words_survive("/fcgi/words");
}

fn written_words_survive(place: &str) {
    let real = start();
    let port = real.port();
    let ask = |http: &mut Http, word: &str| {
        let answer = http.get(&format!("{place}?{word}"))?;
        assert!(answer.status == 200 && answer.text().starts_with("ok "), "{answer:?}");
        Ok(())
    };
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, 6, 60, connect, ask);
    let all =
        Http::connect(port, PATIENCE_OF_A_CLIENT).unwrap().get(&format!("{place}?all")).unwrap();
    books.assert_found(&all.text().lines().map(str::to_string).collect::<Vec<_>>());
    real.continue_a_follower_with_a_client(|| Http::connect(port, ANSWER), ask);
    real.end();
}
