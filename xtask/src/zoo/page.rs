//! `docs/servers.md`, printed from the zoo's files.

use std::fmt::Write as _;

use super::root::ALL;
use super::species::{self, Species};
use skein_testkit::Outcome;
use skein_testkit::servers::FOLDER;

/// The printed page.
pub const PAGE: &str = "docs/servers.md";

/// The page as it must be.
pub fn page() -> Outcome<String> {
    let mut out = String::from(
        "# Servers\n\n\
         Servers from Debian 12 as they come, each with the command line that a user would type in a directory that holds the server's\n\
         configuration. `cargo xtask zoo NAME` runs one: through `skein check` with its usual client, then on three replicas under load while the leader's\n\
         node is killed. What must hold: the check says `deterministic`, nothing acknowledged is lost, all replicas have sent the same bytes and\n\
         written the same files, and their memory is equal. Configuration and client of each stand in `zoo/`; this page is printed from there (`cargo xtask zoo --page`).\n\n\
         | server | packages | command | in `make test` |\n|---|---|---|---|\n",
    );
    let all = species::all()?;
    let run =
        |own: bool| all.iter().filter(move |one| one.not_yet.is_none() && one.is_own() == own);
    for one in run(false) {
        out.push_str(&row(one));
    }
    let _ = write!(
        out,
        "\n## Servers of this repository\n\n\
         Compiled from `{FOLDER}`, for `cargo xtask zoo NAME` and `cargo xtask soak NAME`.\n\n\
         | server | packages | command | in `make test` |\n|---|---|---|---|\n"
    );
    for one in run(true) {
        out.push_str(&row(one));
    }
    let later: Vec<_> = all.iter().filter(|one| one.not_yet.is_some()).collect();
    if !later.is_empty() {
        out.push_str("\n## Not yet\n\n| server | why |\n|---|---|\n");
        for one in later {
            let why = one.not_yet.as_deref().unwrap_or_default();
            let _ = writeln!(out, "| [{}](../zoo/{}.toml) | {why} |", one.title, one.name);
        }
    }
    out.push_str(&distributions(&all));
    out.push_str(
        "\nServers that the tests drive also by tests of their own in `crates/cli/tests`: redis, memcached, nginx, Apache httpd, lighttpd, haproxy, MariaDB,\n\
         PostgreSQL, clamd, gerbera.\n",
    );
    Ok(out)
}

fn row(one: &Species) -> String {
    format!(
        "| [{}](../zoo/{}.toml) | {} | `{}` | {} |\n",
        one.title,
        one.name,
        one.packages.join(", "),
        one.typed().replace('|', "\\|"),
        if one.in_tests { "yes" } else { "" }
    )
}

/// Which servers run on other distributions.
fn distributions(all: &[Species]) -> String {
    let mut out = String::from(
        "\n## Other distributions\n\n\
         The same in the root directory of another distribution, with the `skein` that was built on Debian 12: `cargo xtask zoo --root NAME [SERVER]`, as root.\n\
         It makes the directory below `target/roots` with mmdebstrap, and leaves no mount.\n\n\
         | server |",
    );
    for one in &ALL {
        let _ = write!(out, " {}: `--root {}` |", one.title, one.name);
    }
    out.push_str("\n|---|");
    out.push_str(&"---|".repeat(ALL.len()));
    out.push('\n');
    for one in all.iter().filter(|one| !one.on.is_empty()) {
        let _ = write!(out, "| {} |", one.title);
        for distribution in &ALL {
            let cell = match one.on.get(distribution.name) {
                Some(there) => there.not_yet.as_deref().unwrap_or("runs"),
                None => "not tried",
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out
}
