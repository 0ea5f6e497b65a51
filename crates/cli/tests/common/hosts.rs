//! Three hosts on one machine: network namespaces joined by a bridge in a fourth one.
//!
//! Nothing of it is in the machine's own network namespace, and the namespaces have no names: each lives as long as a
//! `sleep` in it, which a guard ends (and which ends by itself if the test is killed).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::wait_for;

/// The longest life of a namespace whose test was killed.
const SLEEP_S: &str = "1200";

/// A network namespace.
pub struct Net {
    sleeper: Child,
}

impl Net {
    /// Makes one.
    pub fn new() -> Self {
        let sleeper = Command::new("unshare")
            .args(["--net", "sleep", SLEEP_S])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let net = Self { sleeper };
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        wait_for("a network namespace", || {
            let theirs = fs::read_link(net.path()).ok()?;
            let runs = fs::read(format!("/proc/{}/cmdline", net.sleeper.id())).ok()?;
            (theirs != own && runs.starts_with(b"sleep")).then_some(())
        });
        net.ip("link set lo up");
        net
    }

    /// The data that [`join`] takes.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.sleeper.id()).into()
    }

    /// A command in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `ip` in it.
    #[track_caller]
    pub fn ip(&self, line: &str) {
        let output = self.command("ip").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs `work` in it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                join(&self.path());
                work()
            });
            inside.join().unwrap()
        })
    }
}

/// Puts this thread into a network namespace, for good.
pub fn join(path: &Path) {
    let file = fs::File::open(path).unwrap();
    nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
}

impl Drop for Net {
    fn drop(&mut self) {
        // It has ended already when the test took longer than the sleep.
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

/// The hosts and the namespace that joins them; host N is 10.77.0.N, the joining one 10.77.0.100.
pub struct Hosts {
    /// The clients' namespace.
    pub middle: Net,
    /// Hosts 1 to 3.
    pub hosts: Vec<Net>,
}

impl Hosts {
    /// Makes three.
    pub fn new() -> Self {
        let middle = Net::new();
        middle.ip("link add bridge type bridge");
        middle.ip("address add 10.77.0.100/24 dev bridge");
        middle.ip("link set bridge up");
        let hosts: Vec<Net> = (0..3).map(|_| Net::new()).collect();
        for (number, host) in (1..).zip(&hosts) {
            let pid = host.sleeper.id();
            middle.ip(&format!("link add cable{number} type veth peer name eth0 netns {pid}"));
            middle.ip(&format!("link set cable{number} master bridge up"));
            host.ip(&format!("address add 10.77.0.{number}/24 dev eth0"));
            host.ip("link set eth0 up");
        }
        Self { middle, hosts }
    }

    /// Host `number`.
    pub fn host(&self, number: u64) -> &Net {
        &self.hosts[number as usize - 1]
    }

    /// Pulls, or plugs in, the cable of host `number`.
    pub fn cable(&self, number: u64, state: &str) {
        self.middle.ip(&format!("link set cable{number} {state}"));
    }

    /// Drops packets from host `from` to host `to`, or (`del`) delivers them again.
    pub fn lose(&self, from: u64, to: u64, what: &str) {
        self.host(from).ip(&format!("route {what} blackhole 10.77.0.{to}/32"));
    }

    /// Makes host `number` send slowly, through a queue, or (`del`) normally; false where the kernel has no such queue.
    pub fn slow(&self, number: u64, what: &str) -> bool {
        let mut tc = self.host(number).command("tc");
        tc.args(["qdisc", what, "dev", "eth0", "root"]);
        if what == "add" {
            tc.args(["tbf", "rate", "250kbit", "burst", "4kb", "latency", "400ms"]);
        }
        tc.status().unwrap().success()
    }
}
