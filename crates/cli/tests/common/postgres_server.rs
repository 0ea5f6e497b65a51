//! PostgreSQL 15 from Debian on three replicas, and its own client programs.

use std::fs;
use std::os::unix::fs::chown;

use super::Place;
use super::cluster::free_port;
use super::real::{Real, installed};
use super::story::tool;
use nix::unistd::{User, geteuid};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

fn program(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

/// Three replicas on a fresh data directory, the same for all of them. PostgreSQL refuses to run as root.
pub fn start(settings: &[&str]) -> Real {
    start_with(&[], settings)
}

/// The same with options of `skein run`.
pub fn start_with(options: &[&str], settings: &[&str]) -> Real {
    installed(&program("postgres"));
    let place = Place::new();
    let data = place.path("postgres");
    fs::create_dir(&data).unwrap();
    let data = data.to_str().unwrap();
    let mut server = Vec::new();
    if geteuid().is_root() {
        let user = User::from_name("postgres").unwrap().expect("the package made a user");
        chown(data, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        let ids = ["/usr/bin/setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
        server.extend(ids.map(String::from));
    }
    let initdb = [program("initdb"), "-D".into(), data.into()];
    let initdb = [&server[..], &initdb[..]].concat();
    let initdb: Vec<&str> = initdb.iter().map(String::as_str).collect();
    let as_root = ["--username=postgres", "--auth=trust", "--no-sync"];
    tool(initdb[0], &[&initdb[1..], &as_root[..]].concat());
    let port = free_port();
    let port_text = port.to_string();
    server.push(program("postgres"));
    for word in ["-D", data, "-k", data, "-p", &port_text] {
        server.push(word.into());
    }
    server.extend(settings.iter().flat_map(|set| ["-c".to_string(), (*set).to_string()]));
    Real::serve(place, port, options, server)
}

/// Runs one of its client programs; answers the output.
pub fn client(port: u16, name: &str, args: &[&str]) -> String {
    let port = port.to_string();
    let common = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres"];
    tool(&program(name), &[&common[..], args].concat())
}
