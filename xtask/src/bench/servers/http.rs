//! The web servers: one page of 4 KiB over connections that stay open, and the body of every reply is compared.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::{Workload, words};
use crate::bench::load::{self, Alone, Throughput};
use crate::bench::wire::Exchange;
use crate::report::{Failure, Outcome};

/// nginx with two worker processes.
pub struct Nginx;
/// lighttpd: one process.
pub struct Lighttpd;
/// Apache httpd with the event MPM.
pub struct Apache;

/// The page's bytes.
const PAGE_BYTES: usize = 4096;

fn page() -> String {
    "0123456789abcde\n".repeat(PAGE_BYTES / 16)
}

pub(super) fn get() -> Exchange {
    Exchange::http("GET /page.html HTTP/1.1\r\nHost: bench\r\n\r\n".to_owned(), page())
}

/// Writes lighttpd's configuration and the page, to serve at `port`; the command that does.
pub(super) fn lighttpd(directory: &Path, port: u16) -> Outcome<Vec<String>> {
    write(directory, port, "lighttpd.conf", LIGHTTPD)?;
    Ok(Lighttpd.command(directory, port))
}

/// A configuration file, with `{dir}` and `{port}` filled in, beside the page.
fn write(directory: &Path, port: u16, name: &str, text: &str) -> Outcome {
    let failed = |error: io::Error| Failure::of(directory.display(), error);
    for folder in ["www", "run"] {
        std::fs::create_dir_all(directory.join(folder)).map_err(failed)?;
    }
    let text = text
        .replace("{dir}", &directory.display().to_string())
        .replace("{port}", &port.to_string());
    std::fs::write(directory.join(name), text).map_err(failed)?;
    std::fs::write(directory.join("www/page.html"), page()).map_err(failed)
}

pub(super) fn alone(name: &str, service: SocketAddr, requests: u32) -> Outcome<Alone> {
    load::alone(name, service, &[get()], requests)
}

pub(super) fn crowd(
    name: &str,
    service: SocketAddr,
    requests: u32,
    n: u32,
) -> Outcome<Vec<Throughput>> {
    Ok(vec![load::crowd(name, "page", service, &[get()], requests, n)?])
}

const NGINX: &str = "worker_processes 2;
pid {dir}/run/nginx.pid;
error_log {dir}/run/error.log;
events { worker_connections 1024; }
http {
  access_log off; default_type text/html; keepalive_requests 1000000; sendfile on; tcp_nopush on;
  client_body_temp_path {dir}/run/body; proxy_temp_path {dir}/run/proxy;
  fastcgi_temp_path {dir}/run/fastcgi; uwsgi_temp_path {dir}/run/uwsgi; scgi_temp_path {dir}/run/scgi;
  server { listen 127.0.0.1:{port}; root {dir}/www; }
}
";

impl Workload for Nginx {
    fn heading(&self) -> &'static str {
        "nginx, 2 worker processes, a page of 4 KiB"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["/usr/sbin/nginx", "-v"]
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        write(directory, port, "nginx.conf", NGINX)
    }
    fn command(&self, directory: &Path, _: u16) -> Vec<String> {
        let conf = directory.join("nginx.conf").display().to_string();
        words(&["/usr/sbin/nginx", "-c", &conf, "-g", "daemon off;"])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &get())
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        alone("nginx", service, requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        crowd("nginx", service, requests, clients)
    }
}

const LIGHTTPD: &str = "server.port = {port}
server.bind = \"127.0.0.1\"
server.document-root = \"{dir}/www\"
server.errorlog = \"{dir}/run/error.log\"
server.max-keep-alive-requests = 65535
mimetype.assign = ( \".html\" => \"text/html\" )
";

impl Workload for Lighttpd {
    fn heading(&self) -> &'static str {
        "lighttpd, a page of 4 KiB"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["/usr/sbin/lighttpd", "-v"]
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        lighttpd(directory, port).map(drop)
    }
    fn command(&self, directory: &Path, _: u16) -> Vec<String> {
        let conf = directory.join("lighttpd.conf").display().to_string();
        words(&["/usr/sbin/lighttpd", "-D", "-f", &conf])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &get())
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        alone("lighttpd", service, requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        crowd("lighttpd", service, requests, clients)
    }
}

const APACHE: &str = "ServerRoot {dir}
ServerName bench
PidFile {dir}/run/httpd.pid
DefaultRuntimeDir {dir}/run
Listen 127.0.0.1:{port}
ErrorLog {dir}/run/error.log
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
TypesConfig /etc/mime.types
StartServers 2
ServerLimit 2
ThreadsPerChild 50
MaxRequestWorkers 100
MinSpareThreads 50
MaxSpareThreads 100
MaxKeepAliveRequests 0
User www-data
Group www-data
DocumentRoot {dir}/www
<Directory {dir}/www>
  Require all granted
</Directory>
";

impl Workload for Apache {
    fn heading(&self) -> &'static str {
        "Apache httpd, event MPM with 2 processes of 50 threads, a page of 4 KiB"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["/usr/sbin/apache2", "-v"]
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        write(directory, port, "httpd.conf", APACHE)
    }
    fn command(&self, directory: &Path, _: u16) -> Vec<String> {
        let conf = directory.join("httpd.conf").display().to_string();
        words(&["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", &conf])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &get())
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        alone("apache", service, requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        crowd("apache", service, requests, clients)
    }
}
