//! The web servers: one page of 4 KiB over connections that stay open, and the body of every reply is compared.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::{Workload, configure};
use crate::load::{self, Alone, Throughput};
use crate::wire::Exchange;
use skein_testkit::{Failure, Outcome};

/// A server of static pages: its command and configuration.
pub struct Web {
    name: &'static str,
    heading: &'static str,
    version: &'static [&'static str],
    /// The command, with `{conf}` for the path of its configuration.
    command: &'static [&'static str],
    /// The configuration's name and its parts.
    conf: (&'static str, &'static [&'static str]),
}

/// nginx with two worker processes.
pub const NGINX: Web = Web {
    name: "nginx",
    heading: "nginx, 2 worker processes, a page of 4 KiB",
    version: &["/usr/sbin/nginx", "-v"],
    command: &["/usr/sbin/nginx", "-c", "{conf}", "-g", "daemon off;"],
    conf: ("nginx.conf", &[NGINX_CONF]),
};

/// lighttpd: one process.
pub const LIGHTTPD: Web = Web {
    name: "lighttpd",
    heading: "lighttpd, a page of 4 KiB",
    version: &["/usr/sbin/lighttpd", "-v"],
    command: &["/usr/sbin/lighttpd", "-D", "-f", "{conf}"],
    conf: ("lighttpd.conf", &[LIGHTTPD_CONF]),
};

/// Apache httpd with the event MPM.
pub const APACHE: Web = Web {
    name: "apache",
    heading: "Apache httpd, event MPM with 2 processes of 50 threads, a page of 4 KiB",
    version: &["/usr/sbin/apache2", "-v"],
    command: &["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", "{conf}"],
    conf: ("httpd.conf", &[APACHE_CONF, APACHE_PAGES]),
};

/// The JVM's own HTTP server, with a pool of threads.
pub const JVM: Web = Web {
    name: "jvm",
    heading: "JVM 17, its own HTTP server, a page of 4 KiB",
    version: &["/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-version"],
    command: &["/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-Xmx128m", "{conf}"],
    conf: ("App.java", &[JVM_APP]),
};

const JVM_APP: &str = "import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.*;
import java.util.concurrent.Executors;

public class App {
    public static void main(String[] words) throws Exception {
        var page = Files.readAllBytes(Path.of(\"{dir}/www/page.html\"));
        var server = HttpServer.create(new InetSocketAddress(\"127.0.0.1\", {port}), 64);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext(\"/\", exchange -> {
            exchange.sendResponseHeaders(200, page.length);
            exchange.getResponseBody().write(page);
            exchange.close();
        });
        server.start();
    }
}
";

const NGINX_CONF: &str = "worker_processes 2;
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

const LIGHTTPD_CONF: &str = "server.port = {port}
server.bind = \"127.0.0.1\"
server.document-root = \"{dir}/www\"
server.errorlog = \"{dir}/run/error.log\"
server.max-keep-alive-requests = 65535
mimetype.assign = ( \".html\" => \"text/html\" )
";

/// The start of all of Apache's configurations.
pub(super) const APACHE_CONF: &str = "ServerRoot {dir}
ServerName bench
PidFile {dir}/run/httpd.pid
DefaultRuntimeDir {dir}/run
Listen 127.0.0.1:{port}
ErrorLog {dir}/run/error.log
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
User www-data
Group www-data
";

const APACHE_PAGES: &str = "LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
TypesConfig /etc/mime.types
StartServers 2
ServerLimit 2
ThreadsPerChild 50
MaxRequestWorkers 100
MinSpareThreads 50
MaxSpareThreads 100
MaxKeepAliveRequests 0
DocumentRoot {dir}/www
<Directory {dir}/www>
  Require all granted
</Directory>
";

/// The page's bytes.
const PAGE_BYTES: usize = 4096;

fn page() -> String {
    "0123456789abcde\n".repeat(PAGE_BYTES / 16)
}

pub fn get() -> Exchange {
    Exchange::http("GET /page.html HTTP/1.1\r\nHost: bench\r\n\r\n".to_owned(), page())
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
    load::crowd(name, &[("page", &[get()])], service, requests, n)
}

impl Workload for Web {
    fn heading(&self) -> &'static str {
        self.heading
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        self.version
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        let (name, parts) = self.conf;
        configure(directory, port, &["www", "run"], name, &parts.concat())?;
        let path = directory.join("www/page.html");
        std::fs::write(&path, page()).map_err(|error| Failure::of(path.display(), error))
    }
    fn command(&self, directory: &Path, _: u16) -> Vec<String> {
        let conf = directory.join(self.conf.0).display().to_string();
        self.command.iter().map(|word| word.replace("{conf}", &conf)).collect()
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &get())
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        alone(self.name, service, requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        crowd(self.name, service, requests, clients)
    }
}
