//! The cluster that is lived through: nodes of a redis as on several hosts, and a service manager that starts them again.
//!
//! It knows what the cluster should be (members, edition, program, Skein, a setting of redis), so that it can be checked after each event.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process;
use crate::target::{await_within, data_root};
use crate::wire::{Client, Exchange};
use skein_testkit::cluster::status::Status;
use skein_testkit::cluster::{difference, find_command};
use skein_testkit::nodes::{Joined, Nodes, REMOVED, Setup, Skein};
use skein_testkit::{Failure, Outcome};

const NAME: &str = "life";
/// The first replicas.
const FOUNDERS: [u64; 3] = [1, 2, 3];
/// How long a command, and the cluster after an event, may take.
const PATIENCE: Duration = Duration::from_secs(120);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The program that comes with the machine.
const PROGRAM: &str = "/usr/bin/redis-server";

/// Nodes, and what they should be.
pub struct Cluster {
    // Dropped in this order: no node runs when its directory goes.
    state: Mutex<State>,
    /// Where clients connect, of all hosts.
    addresses: Mutex<Vec<SocketAddr>>,
    joined: Joined,
    place: tempfile::TempDir,
}

struct State {
    nodes: Nodes,
    wanted: Wanted,
    /// The id of the next host.
    next: u64,
    /// How many other versions of Skein there were.
    versions: u64,
    /// A node that ended by itself.
    ended: Option<Failure>,
}

/// What the cluster should be.
#[derive(Debug, Clone)]
struct Wanted {
    members: Vec<u64>,
    edition: u64,
    program: PathBuf,
    /// Whether the hosts have another Skein than the servers.
    other_runtime: bool,
    /// The value of the servers' variable `SERVER_BEFORE`; nothing before it has one.
    variable: String,
    /// The value of redis' `slowlog-max-len`.
    setting: u64,
}

impl Cluster {
    /// Three nodes on three hosts, which serve.
    pub fn start(durability: &'static str) -> Outcome<Self> {
        let place = tempfile::Builder::new()
            .prefix("skein-bench-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(data_root())
            .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
        let at = |name: &str| place.path().join(name);
        for dir in ["hosts", "redis"] {
            fs::create_dir(at(dir)).map_err(|error| Failure::of(at(dir).display(), error))?;
        }
        let setting = 100;
        configure_redis(&at("redis"), setting)?;
        let program = find_command()?;
        let beside = program.with_file_name("libskein.so");
        let runtime = std::env::var_os("SKEIN_RUNTIME").map_or(beside, PathBuf::from);
        let conf = at("redis").join("redis.conf").to_string_lossy().into_owned();
        let setup = Setup {
            name: NAME.to_owned(),
            cluster_id: Some("11fe".repeat(8)),
            durability,
            server: vec![PROGRAM.to_owned(), conf],
            server_lines: String::new(),
            checkpoint: String::new(),
            skein: Skein { program, runtime },
        };
        let mut nodes = Nodes::new(&at("hosts"), setup)?;
        FOUNDERS.into_iter().try_for_each(|id| nodes.add(id))?;
        for id in FOUNDERS {
            nodes.begin(id, "found", &FOUNDERS)?;
            nodes.start(id)?;
        }
        let joined = Joined::new(&at("all"), NAME)?;
        let members = FOUNDERS.to_vec();
        let wanted = Wanted {
            members,
            edition: 1,
            program: PROGRAM.into(),
            other_runtime: false,
            variable: String::new(),
            setting,
        };
        let state = State { nodes, wanted, next: 4, versions: 0, ended: None };
        let addresses = Mutex::new(Vec::new());
        let cluster = Self { state: Mutex::new(state), addresses, joined, place };
        cluster.announce()?;
        Ok(cluster)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The work of a service manager, to be called often.
    pub fn tend(&self) -> Outcome {
        let mut state = self.state();
        for ended in state.nodes.tend()? {
            let status = ended.status;
            let was_meant = status.success()
                || status.code() == Some(REMOVED)
                || status.signal() == Some(Signal::SIGKILL as i32);
            if !was_meant {
                let (id, said) = (ended.id, state.nodes.said(ended.id));
                state.ended = Some(Failure(format!("node {id} ended by itself, {status}: {said}")));
            }
        }
        Ok(())
    }

    /// Where clients connect, of all hosts.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// A connection to a host that takes one.
    pub fn client(&self) -> Outcome<Client> {
        await_some("a connection", || {
            let mut all = self.addresses().into_iter();
            Ok(all.find_map(|address| Client::connect(address, ANSWER_MAX).ok()))
        })
    }

    /// The status, as soon as all replicas are in step.
    pub fn whole(&self) -> Outcome<Status> {
        let mut last = String::new();
        let probe = || {
            let output = self.joined_command(&["status", "--json"])?.output();
            let output = output.map_err(|error| Failure::of("cannot run skein", error))?;
            last = String::from_utf8_lossy(&output.stdout).into_owned();
            let count = self.state().wanted.members.len() as u64;
            Ok(Status::parse(&output.stdout).ok().filter(|status| status.is_in_step(count)))
        };
        await_some("all replicas to be in step", probe).map_err(|failure| {
            let lines = Status::parse(last.as_bytes()).map(|status| status.lines());
            Failure::of(failure, lines.unwrap_or_default().join(";"))
        })
    }

    /// `skein` on the host of a replica.
    pub fn on(&self, id: u64, words: &[&str]) -> Outcome<String> {
        let mut command = self.state().nodes.command(id, words)?;
        let failed = |failure| Failure::of(format!("skein {}", words.join(" ")), failure);
        process::output(&mut command, PATIENCE).map_err(failed)
    }

    /// `skein` where it finds all replicas.
    pub fn skein(&self, words: &[&str]) -> Outcome<String> {
        let failed = |failure| Failure::of(format!("skein {}", words.join(" ")), failure);
        process::output(&mut self.joined_command(words)?, PATIENCE).map_err(failed)
    }

    fn joined_command(&self, words: &[&str]) -> Outcome<Command> {
        let state = self.state();
        let id = state.wanted.members[0];
        let mut command = state.nodes.command(id, words)?;
        command.env("SKEIN_RUN_DIR", self.joined.root());
        Ok(command)
    }

    /// The nodes that run, and the servers with all their processes.
    pub fn processes(&self) -> [Vec<i32>; 2] {
        let output = self.joined_command(&["status", "--json"]).map(|mut command| command.output());
        let status = output.ok().and_then(Result::ok).map(|output| Status::parse(&output.stdout));
        let status = status.and_then(Result::ok);
        let replicas = status.iter().flat_map(Status::replicas);
        let there = |pid: &i32| *pid > 1;
        let nodes = replicas.clone().map(|replica| replica.node_pid).filter(there).collect();
        let servers = replicas.map(|replica| replica.server_pid).filter(there);
        [nodes, process::trees(servers)]
    }

    /// What the hosts keep: data directories and events.
    pub fn hosts(&self) -> PathBuf {
        self.place.path().join("hosts")
    }

    /// A path that is no host's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The directory of redis, as it sees it.
    pub fn redis(&self) -> PathBuf {
        self.path("redis")
    }

    /// The members.
    pub fn members(&self) -> Vec<u64> {
        self.state().wanted.members.clone()
    }

    /// Clients, and commands for all replicas, find the members from now on.
    fn announce(&self) -> Outcome {
        let state = self.state();
        let addresses = state.wanted.members.iter().map(|id| state.nodes.clients(*id));
        let addresses = addresses.collect::<Outcome<Vec<_>>>()?;
        *self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = addresses;
        let all = state.wanted.members.iter().map(|id| state.nodes.member(*id));
        self.joined.name("order", &all.collect::<Outcome<Vec<_>>>()?)
    }

    /// A new host with an empty directory, whose node joins and knows the members but for these.
    pub fn join(&self, but: &[u64]) -> Outcome<(u64, String)> {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let peers: Vec<u64> =
            state.wanted.members.iter().copied().filter(|id| !but.contains(id)).collect();
        state.nodes.add(id)?;
        state.nodes.begin(id, "join", &peers)?;
        state.nodes.start(id)?;
        let place = format!("{id}={}", state.nodes.peer(id)?);
        Ok((id, place))
    }

    /// Members come and go; who goes is lost with its host, once its node has ended.
    pub fn change(&self, comes: Option<u64>, goes: Option<u64>) -> Outcome {
        let mut state = self.state();
        state.wanted.members.retain(|id| Some(*id) != goes);
        state.wanted.members.extend(comes);
        drop(state);
        self.announce()?;
        let Some(goes) = goes else { return Ok(()) };
        await_some("the removed node to end", || {
            Ok((!self.state().nodes.runs(goes)).then_some(()))
        })?;
        self.no_difference(goes)?;
        self.state().nodes.lose(goes)
    }

    /// Kills a node, which is not started again.
    pub fn crash(&self, id: u64) -> Outcome {
        self.state().nodes.kill(id)
    }

    /// Kills all nodes at once, and with them their servers; they are not started again.
    pub fn crash_all(&self) -> Outcome {
        self.state().nodes.kill_all()
    }

    /// Starts nodes again that were killed.
    pub fn come_back(&self, ids: &[u64]) -> Outcome {
        let mut state = self.state();
        ids.iter().try_for_each(|id| state.nodes.start(*id))
    }

    /// A replica's disk is lost; a new one is filled by the others.
    pub fn lose_disk(&self, id: u64) -> Outcome {
        let data = {
            let mut state = self.state();
            state.nodes.kill(id)?;
            state.nodes.data(id)
        };
        fs::remove_dir_all(&data).map_err(|error| Failure::of(data.display(), error))?;
        let mut state = self.state();
        let members = state.wanted.members.clone();
        state.nodes.begin(id, "rejoin", &members)?;
        state.nodes.start(id)
    }

    /// Another Skein: the same build, with other bytes behind the end of its runtime.
    pub fn another_skein(&self) -> Outcome<Skein> {
        let mut state = self.state();
        state.versions += 1;
        let version = state.versions;
        let bytes = format!("version {version}");
        let dir = self.place.path().join(format!("skein-{version}"));
        state.nodes.setup.skein.copy(&dir, |runtime| runtime.extend_from_slice(bytes.as_bytes()))
    }

    /// Gives a host another Skein, and its node a start with that.
    pub fn renew(&self, id: u64, skein: &Skein) -> Outcome {
        let mut node = self.state().nodes.take(id)?;
        self.on(id, &["stop"])?;
        let failed = |error| Failure::of(format!("node {id}"), error);
        let status = await_some("the stopped node to end", || node.try_wait().map_err(failed))?;
        if !status.success() {
            return Err(Failure(format!("node {id} was stopped, and ended with {status}")));
        }
        let mut state = self.state();
        state.nodes.install(id, skein.clone())?;
        state.nodes.start(id)
    }

    /// All hosts have it: what came before is removed.
    pub fn has_only(&self, skein: Skein) -> Outcome {
        let mut state = self.state();
        state.wanted.other_runtime = true;
        let before = std::mem::replace(&mut state.nodes.setup.skein, skein);
        let dir = before.program.parent().unwrap_or(Path::new(""));
        // The first one is the build.
        if !dir.starts_with(self.place.path()) {
            return Ok(());
        }
        fs::remove_dir_all(dir).map_err(|error| Failure::of(dir.display(), error))
    }

    /// `skein upgrade` on a host, which must succeed; answers the report.
    pub fn upgrade(&self, id: u64, words: &[&str]) -> Outcome<Value> {
        let said = self.on(id, &[&["upgrade", "--json"], words].concat())?;
        let report: Value = serde_json::from_str(&said)
            .map_err(|error| Failure::of("skein upgrade --json", error))?;
        let mut state = self.state();
        if report["outcome"] != "kept" {
            return Err(Failure::of("skein upgrade", report));
        }
        state.wanted.edition = report["edition"].as_u64().unwrap_or_default();
        Ok(report)
    }

    /// The servers' variable names this process.
    pub fn has_variable(&self, pid: i32) {
        self.state().wanted.variable = pid.to_string();
    }

    /// The servers have the Skein of the hosts.
    pub fn has_new_runtime(&self) {
        self.state().wanted.other_runtime = false;
    }

    /// The program, and another one that it can be replaced by.
    pub fn programs(&self) -> [PathBuf; 2] {
        let now = self.state().wanted.program.clone();
        let copy = self.redis().join("redis-server");
        if now == copy { [now, PROGRAM.into()] } else { [now, copy] }
    }

    /// The servers' program is another one.
    pub fn has_program(&self, program: PathBuf) {
        self.state().wanted.program = program;
    }

    /// Writes another setting into redis' configuration on the hosts; answers it.
    pub fn edit(&self) -> Outcome<u64> {
        let setting = self.state().wanted.setting + 1;
        configure_redis(&self.redis(), setting)?;
        Ok(setting)
    }

    /// What is in the hosts' configuration is what the servers have.
    pub fn has_setting(&self, setting: u64) {
        self.state().wanted.setting = setting;
    }

    /// `skein base diff` on a host.
    pub fn base_diff(&self, id: u64) -> Outcome<String> {
        let state = self.state();
        let data = state.nodes.data(id).to_string_lossy().into_owned();
        let output = state.nodes.skein(id, &["base", "diff", "--data", &data])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until this replica has a vote, is of a kind without a server (`passive` or `witness`), and has none.
    pub fn rests(&self, id: u64, kind: &str) -> Outcome {
        await_some(&format!("replica {id} to rest as {kind}"), || {
            let replica = self.state().nodes.status(id)?["replicas"][0].clone();
            let rests = replica["state"] == kind && replica["kind"] == kind;
            let votes = replica["role"].is_string() && replica["role"] != "learner";
            Ok((rests && votes).then_some(()))
        })
    }

    /// Waits until this replica leads, with a server that runs.
    pub fn leads(&self, id: u64) -> Outcome {
        await_some(&format!("replica {id} to lead"), || {
            let replica = self.state().nodes.status(id)?["replicas"][0].clone();
            Ok((replica["role"] == "leader" && replica["state"] == "running").then_some(()))
        })
    }

    /// Waits until this replica has the files that a server of the current edition needs.
    pub fn has_files(&self, id: u64) -> Outcome {
        await_some(&format!("replica {id} to have the edition's files"), || {
            let state = self.state();
            let data = state.nodes.data(id).to_string_lossy().into_owned();
            let listed = state.nodes.skein(id, &["base", "ls", "--data", &data])?;
            Ok(listed.status.success().then_some(()))
        })
    }

    /// The digest that all replicas have at the same entry, as soon as they have.
    pub fn equal_digests(&self) -> Outcome<String> {
        await_some("equal digests", || self.whole()?.equal_digests())
    }

    /// Compares the pages and the files of all members' servers; answers what was compared.
    pub fn verify(&self) -> Outcome<String> {
        let said = self.skein(&["verify", "--json"])?;
        let report: Value = serde_json::from_str(&said)
            .map_err(|error| Failure::of("skein verify --json", error))?;
        let compared = report["replicas"].as_array().map_or(0, Vec::len);
        if report["verdict"] != "agree" || compared != self.members().len() {
            return Err(Failure::of("skein verify has not found all members equal", report));
        }
        let first = &report["replicas"][0];
        Ok(format!(
            "{compared} times the same {} pages and {} files",
            first["pages"], first["files"]
        ))
    }

    /// Whether the cluster is what it should be, soon.
    pub fn check(&self) -> Outcome {
        let wanted = self.state().wanted.clone();
        let mut wrong = None;
        let right = await_some("the cluster to be as it should", || {
            wrong = self.wrong(&wanted)?;
            Ok(wrong.is_none().then_some(()))
        });
        right.map_err(|failure| Failure::of(failure, wrong.unwrap_or_default()))?;
        if let Some(failure) = self.state().ended.take() {
            return Err(failure);
        }
        wanted.members.iter().try_for_each(|id| self.no_difference(*id))
    }

    /// What is not as wanted.
    fn wrong(&self, wanted: &Wanted) -> Outcome<Option<String>> {
        let mut members = wanted.members.clone();
        members.sort_unstable();
        for id in &wanted.members {
            let [listed, status] = {
                let state = self.state();
                [state.nodes.members(*id)?, state.nodes.status(*id)?]
            };
            let mut known: Vec<u64> = listed["members"].as_array().map_or(Vec::new(), |all| {
                let votes = all.iter().filter(|at| at["votes"] == true && at["kind"] == "active");
                votes.filter_map(|at| at["id"].as_u64()).collect()
            });
            known.sort_unstable();
            let replica = &status["replicas"][0];
            let edition = &replica["edition"]["number"];
            let about = replica["edition"]["about"].as_str().unwrap_or_default();
            let named = [r#""SERVER_BEFORE""#, &format!("\"{}\"", wanted.variable)];
            let has_variable =
                wanted.variable.is_empty() || named.iter().all(|text| about.contains(text));
            let pid = replica["server_pid"].as_u64().unwrap_or_default();
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let other_runtime = replica["other_runtime"] == true;
            // redis writes its address behind its name.
            let end = line.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(line.len());
            let program = String::from_utf8_lossy(&line[..end]).into_owned();
            let is_right = known == members
                && *edition == wanted.edition
                && other_runtime == wanted.other_runtime
                && has_variable
                && Path::new(&program) == wanted.program;
            if !is_right {
                return Ok(Some(format!(
                    "replica {id}: members {known:?}, edition {edition}, other runtime {other_runtime}, program {program:?}, about {about}; wanted are {wanted:?}"
                )));
            }
        }
        let setting = wanted.setting.to_string();
        let reply = format!("*2\r\n$15\r\nslowlog-max-len\r\n${}\r\n{setting}\r\n", setting.len());
        let ask = "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$15\r\nslowlog-max-len\r\n".to_owned();
        let said = self.client()?.exchange(&Exchange::exact(ask, reply));
        Ok(said.err().map(|error| format!("slowlog-max-len is not {setting}: {error}")))
    }

    /// Fails when a node has noted that its server differs, or cannot go on.
    fn no_difference(&self, id: u64) -> Outcome {
        let log = self.state().nodes.log(id);
        match difference(&log)? {
            Some(event) => Err(Failure(format!("replica {id}: {event}"))),
            None => Ok(()),
        }
    }

    /// Ends the nodes; what they wrote stays on the disk for somebody to look at.
    pub fn keep(self) -> PathBuf {
        drop(self.state);
        self.place.keep()
    }
}

/// redis keeps all in its append-only file, which is written anew when it has doubled: it is bounded as well.
fn configure_redis(dir: &Path, setting: u64) -> Outcome {
    let path = dir.join("redis.conf");
    let text = format!(
        "port 6379\nbind 127.0.0.1\nsave \"\"\nappendonly yes\nauto-aof-rewrite-min-size 64mb\nslowlog-max-len {setting}\ndir {}\n",
        dir.display()
    );
    fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))
}

/// Looks until `probe` finds something, for a bounded time.
pub fn await_some<T>(what: &str, probe: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    await_within(PATIENCE, what, probe)
}
