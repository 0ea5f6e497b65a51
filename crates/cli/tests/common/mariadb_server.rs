//! MariaDB from Debian on three replicas, with its usual configuration.

use std::fs;

use super::Place;
use super::cluster::free_port;
use super::real::{Real, installed};
use super::story::tool;

const PROGRAM: &str = "/usr/sbin/mariadbd";

/// Three replicas on a fresh data directory, the same for all of them.
pub fn start() -> Real {
    installed(PROGRAM);
    let place = Place::new();
    let path = |name: &str| place.path(name).to_str().unwrap().to_string();
    let data = format!("--datadir={}", path("mysql"));
    let root = "--auth-root-authentication-method=normal";
    // A starting mariadbd removes every temporary table in its directory, including those of another test's installation.
    let temporary = path("tmp");
    fs::create_dir(&temporary).unwrap();
    let tmpdir = format!("--tmpdir={temporary}");
    let install = ["--no-defaults", "--user=root", "--skip-test-db", root, &data, &tmpdir];
    tool("mariadb-install-db", &install);
    let port = free_port();
    let server = vec![
        PROGRAM.into(),
        "--defaults-file=/etc/mysql/my.cnf".into(),
        data,
        "--user=root".into(),
        format!("--port={port}"),
        format!("--socket={}", path("mysql.sock")),
        format!("--pid-file={}", path("mysql.pid")),
    ];
    Real::serve(place, port, &[], server)
}
