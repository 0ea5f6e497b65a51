//! Apache httpd with a CGI program that computes for some milliseconds, driven by ApacheBench with a connection a request.
//!
//! After CRANE's workload (ApacheBench, 8 to 12 at a time, a PHP page of about 70 ms); a CGI program is a process a request
//! where theirs is an interpreter in the server's threads. Natively no process waits for the programs (`mod_cgid` ignores their
//! end), so the kernel counts their CPU time nowhere.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Workload, configure, http};
use crate::load::{self, Alone, LOAD_MAX, Throughput};
use crate::process;
use crate::wire::Exchange;
use skein_testkit::{Failure, Outcome};

/// The workload of CGI programs.
pub struct ApacheCgi;

const REQUESTS_MAX: u32 = 240;
/// Of 50 or fewer ApacheBench reads the 99th percentile from behind its table.
const ALONE_REQUESTS: u32 = 60;
const CLIENTS: u32 = 8;

/// The end of all of Apache's configurations.
const CGI: &str = "LoadModule cgid_module /usr/lib/apache2/modules/mod_cgid.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
StartServers 1
ServerLimit 1
ThreadsPerChild 16
MaxRequestWorkers 16
MinSpareThreads 16
MaxSpareThreads 16
ScriptSock {dir}/run/cgisock
ScriptAlias /cgi/ {dir}/cgi/
<Directory {dir}/cgi>
  Require all granted
</Directory>
";

/// A linear congruence, 10,000 times.
const SCRIPT: &str = "#!/bin/sh
at=1
left=10000
while [ $left -gt 0 ]; do
    at=$(( (at * 1103515245 + 12345) % 2147483648 ))
    left=$(( left - 1 ))
done
printf 'Content-Type: text/plain\\r\\n\\r\\n%s\\n' $at
";

/// The script's result.
fn computed() -> u64 {
    (0..10_000).fold(1, |at, _| (at * 1_103_515_245 + 12_345) % 2_147_483_648)
}

fn get() -> Exchange {
    let text = format!("\r\n\r\n{}\n", computed());
    Exchange::until_closed("GET /cgi/page HTTP/1.0\r\nHost: bench\r\n\r\n".to_owned(), text)
}

fn bench(service: SocketAddr, requests: u32, clients: u32) -> Outcome<Throughput> {
    let failed = |error: io::Error| Failure::of("cannot make a temporary file", error);
    let percentiles = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut command = Command::new("ab");
    command
        .args(["-q", "-n", &requests.to_string(), "-c", &clients.to_string(), "-e"])
        .arg(percentiles.path())
        .arg(format!("http://{service}/cgi/page"));
    let text = process::output(&mut command, LOAD_MAX)?;
    let table = std::fs::read_to_string(percentiles.path()).map_err(failed)?;
    parse(&text, &table)
        .ok_or_else(|| Failure(format!("ApacheBench said something else: {}", text.trim())))
}

/// ApacheBench's output, and its table of percentiles [ms]; nothing when a request failed.
fn parse(text: &str, table: &str) -> Option<Throughput> {
    let value = |key: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    if value("Failed requests:")? > 0.0 || text.contains("Non-2xx responses:") {
        return None;
    }
    let percentile_us = |percent: &str| -> Option<f64> {
        let row = table.lines().find_map(|line| line.strip_prefix(percent)?.strip_prefix(','))?;
        row.trim().parse::<f64>().ok().map(|ms| ms * 1e3)
    };
    Some(Throughput {
        operation: "page".to_owned(),
        per_second: value("Requests per second:")?,
        p50_us: percentile_us("50")?,
        p99_us: percentile_us("99")?,
        p999_us: None,
    })
}

impl Workload for ApacheCgi {
    fn heading(&self) -> &'static str {
        "Apache httpd, event MPM, a CGI program that computes for some ms, a connection each (native CPU time lacks the programs')"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        http::APACHE.version()
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        let conf = [http::APACHE_CONF, CGI].concat();
        configure(directory, port, &["cgi", "run"], "httpd.conf", &conf)?;
        let script = directory.join("cgi/page");
        let written = std::fs::write(&script, SCRIPT).and_then(|()| {
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        });
        written.map_err(|error| Failure::of(script.display(), error))
    }
    fn command(&self, directory: &Path, port: u16) -> Vec<String> {
        http::APACHE.command(directory, port)
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &get())
    }
    fn alone(&self, service: SocketAddr, _: u32) -> Outcome<Alone> {
        let one = bench(service, ALONE_REQUESTS, 1)?;
        Ok(Alone {
            p50_us: one.p50_us,
            p99_us: one.p99_us,
            p999_us: None,
            requests: ALONE_REQUESTS as usize,
        })
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        Ok(vec![bench(service, requests, clients)?])
    }
    fn requests(&self, wanted: u32) -> u32 {
        wanted.min(REQUESTS_MAX)
    }
    fn clients(&self, wanted: u32) -> u32 {
        wanted.min(CLIENTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apachebench_prints_is_read() {
        let text = "Concurrency Level:      8\nComplete requests:      240\nFailed requests:        0\n\
                    Requests per second:    141.20 [#/sec] (mean)\n";
        let table = "Percentage served,Time in ms\n0,13.100\n5,20.000\n50,55.250\n99,80.125\n";
        let found = parse(text, table).expect("its form");
        assert_eq!((found.per_second, found.p50_us, found.p99_us), (141.2, 55_250.0, 80_125.0));
        let failed = text.replace("requests:        0", "requests:        3");
        assert!(parse(&failed, table).is_none());
        assert!(parse(&format!("{text}Non-2xx responses:      240\n"), table).is_none());
    }
}
