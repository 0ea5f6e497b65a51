//! Apache httpd from Debian on three replicas, event MPM with several processes: static files, uploads, CGI, while the leader dies.

mod common;

use common::Place;
use common::cluster::free_port;
use common::http::Http;
use common::real::{ANSWER, Real};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load};
use common::web::{page, tree, uploads_survive, usual_tools};

/// Debian's modules and their configuration, a site of our own.
fn start() -> Real {
    let (place, port) = (Place::new(), free_port());
    tree(&place);
    let path = |name: &str| place.path(name).to_str().unwrap().to_string();
    std::fs::create_dir(place.path("cgi")).unwrap();
    let script = "#!/bin/sh
echo 'Content-Type: text/plain'
echo
echo \"$QUERY_STRING $$ $(date +%s%N) $(od -An -N4 -tx4 /dev/urandom)\"
";
    place.file("cgi/hello", script, 0o755);
    let lines = [
        "ServerRoot /etc/apache2".to_string(),
        format!("Define APACHE_RUN_DIR {}", path("log")),
        format!("Define APACHE_LOG_DIR {}", path("log")),
        "DefaultRuntimeDir ${APACHE_RUN_DIR}".into(),
        "PidFile ${APACHE_RUN_DIR}/apache2.pid".into(),
        "User www-data".into(),
        "Group www-data".into(),
        "ServerName localhost".into(),
        "IncludeOptional mods-enabled/*.load".into(),
        "IncludeOptional mods-enabled/*.conf".into(),
        "LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so".into(),
        "LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so".into(),
        "LoadModule cgid_module /usr/lib/apache2/modules/mod_cgid.so".into(),
        "ScriptSock ${APACHE_RUN_DIR}/cgisock".into(),
        format!("DAVLockDB {}/davlock", path("log")),
        format!("Listen 127.0.0.1:{port}"),
        "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O %D\" timed".into(),
        "CustomLog ${APACHE_LOG_DIR}/access.log timed".into(),
        "ErrorLog ${APACHE_LOG_DIR}/error.log".into(),
        "StartServers 2".into(),
        "MaxKeepAliveRequests 0".into(),
        format!("DocumentRoot {}", path("www")),
        format!("ScriptAlias /cgi/ {}/", path("cgi")),
        format!("<Directory {}>\nRequire all granted\n</Directory>", path("")),
        format!("<Directory {}>\nDav On\n</Directory>", path("www/up")),
    ];
    let config = place.file("apache.conf", &(lines.join("\n") + "\n"), 0o644);
    let config = config.to_str().unwrap().to_string();
    let words = ["/usr/sbin/apache2", "-DFOREGROUND", "-f", &config];
    Real::serve(place, port, &[], words.map(String::from).to_vec())
}

#[test]
fn uploads_survive_the_leader() {
    let real = start();
    usual_tools(&real, "/3.txt");
    uploads_survive(&real);
    usual_tools(&real, "/4.txt");
    // The script is another program, which a process of the image starts.
    let ask = |http: &mut Http, word: &str| {
        assert_eq!(http.get("/3.txt")?.text(), page(3));
        let answer = http.get(&format!("/cgi/hello?{word}"))?;
        assert!(answer.status == 200 && answer.text().starts_with(word), "{answer:?}");
        Ok(())
    };
    real.continue_a_follower_with_a_client(|| Http::connect(real.port(), ANSWER), ask);
    real.end();
}

#[test]
fn scripts_answer_while_the_leader_dies() {
    let real = start();
    let port = real.port();
    let ask = |http: &mut Http, word: &str| {
        let answer = http.get(&format!("/cgi/hello?{word}"))?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let text = answer.text();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.len() == 4 && words[0] == word, "{text}");
        Ok(())
    };
    let connect = || Http::connect(port, PATIENCE_OF_A_CLIENT);
    leader_dies_under_load(&real, 6, 60, connect, ask);
    real.end();
}
