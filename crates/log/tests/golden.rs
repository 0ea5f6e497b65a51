//! Readable scenarios: each file in `golden/` is a story of commands and their effects.
//!
//! A line that begins with `>` is a command, the lines after it are its effects: role changes, then, after `status`, the
//! state of each replica, and between `trace on` and `trace off` every message. `#` comments. When behaviour changes
//! on purpose, run the test with `SKEIN_BLESS=1`, read the difference, and commit it.

mod cluster;

use cluster::Cluster;
use skein_log::{Base, Durability};
use skein_model::{LogIndex, ReplicaId, Term};
use std::{fmt::Write, fs, path::Path};

struct Story {
    cluster: Cluster,
}

impl Story {
    fn command(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        let number = |n: usize| -> u64 { words[n].parse().expect("a number") };
        let mut out = String::new();
        match words[0] {
            "cluster" => {
                let durability = match words[2] {
                    "fsync" => Durability::Fsync,
                    "memory" => Durability::Memory,
                    other => panic!("durability {other}"),
                };
                self.cluster = Cluster::new(number(1), durability);
            }
            "cluster-after" => {
                let base = Base { index: LogIndex(number(2)), term: Term(3), ..Base::default() };
                self.cluster = Cluster::after(base, number(1), |_| {});
            }
            "lose-log" => {
                self.cluster.kill(number(1), true);
                self.cluster.replace_disk(number(1));
                self.cluster.base = None;
            }
            "trace" => self.cluster.trace = words[1] == "on",
            "tick" => (0..number(1)).for_each(|_| self.cluster.tick()),
            "elect" => {
                self.cluster.elect();
            }
            "campaign" => {
                self.cluster.at(number(1)).consensus.campaign_now();
                self.cluster.settle();
            }
            "propose" => {
                let result =
                    self.cluster.at(number(1)).consensus.propose(words[2].as_bytes().to_vec());
                self.cluster.settle();
                match result {
                    Ok(index) => writeln!(out, "index {index}").expect("a string"),
                    Err(error) => writeln!(out, "refused: {error}").expect("a string"),
                }
            }
            "isolate" => self.cluster.isolate(number(1)),
            "cut" => {
                let (one, other) = (number(1), number(2));
                self.cluster.cut.extend([(one, other), (other, one)]);
            }
            "lost" => {
                self.cluster.at(number(1)).consensus.peer_lost(ReplicaId(number(2)));
                self.cluster.settle();
            }
            "heal" => self.cluster.cut.clear(),
            "kill" => self.cluster.kill(number(1), false),
            "kill-noticed" => self.cluster.kill(number(1), true),
            "restart" => self.cluster.restart(number(1)),
            "rejoin" => {
                for id in self.cluster.replicas.keys().copied().collect::<Vec<_>>() {
                    let peer = ReplicaId(number(1));
                    self.cluster.at(id).consensus.request_rejoin(peer, number(2));
                }
                self.cluster.settle();
            }
            "stop" => self.cluster.at(number(1)).stopped = true,
            "continue" => {
                self.cluster.at(number(1)).stopped = false;
                self.cluster.settle();
            }
            "image" => {
                let index = self.cluster.at(number(1)).take_image();
                writeln!(out, "image at {index}").expect("a string");
            }
            "compact" => {
                let image = LogIndex(number(2));
                let base = self.cluster.at(number(1)).consensus.compact(image, number(3));
                let base = base.map_or("no other base".to_owned(), |base| {
                    format!("base {}/{}", base.index, base.term)
                });
                writeln!(out, "{base}").expect("a string");
                self.cluster.settle();
            }
            "bring-image" => {
                let newest = self.cluster.at(number(1)).images.last_key_value();
                let newest = *newest.expect("an image").0;
                self.cluster.bring_image(number(1), number(2), newest);
                writeln!(out, "image at {newest}").expect("a string");
            }
            "lose-images" => {
                self.cluster.at(number(1)).images.clear();
                self.cluster.at(number(1)).hold_images();
            }
            "below-base" => {
                let below = self.cluster.at(number(1)).consensus.take_below_base();
                writeln!(out, "{below:?}").expect("a string");
            }
            "status" => out.push_str(&self.status()),
            other => panic!("unknown command {other}"),
        }
        for (id, replica) in &mut self.cluster.replicas {
            replica.refused.dedup();
            for error in replica.refused.drain(..) {
                self.cluster.events.push(format!("{id}: refuses: {error}"));
            }
        }
        let mut events = self.cluster.events.join("\n");
        self.cluster.events.clear();
        if !events.is_empty() {
            events.push('\n');
        }
        events + &out
    }

    fn status(&self) -> String {
        let mut out = String::new();
        for (id, replica) in &self.cluster.replicas {
            let state = match replica {
                replica if !replica.alive => "dead".to_owned(),
                replica => {
                    let status = replica.consensus.status();
                    let stopped = if replica.stopped { " (stopped)" } else { "" };
                    let executed: Vec<&str> =
                        replica.executed.iter().map(|(_, _, payload)| payload.as_str()).collect();
                    format!(
                        "{}{stopped} term {} commit {} last {} executed [{}]",
                        status.role,
                        status.term,
                        status.commit,
                        status.last_index,
                        executed.join(" ")
                    )
                }
            };
            writeln!(out, "{id}: {state}").expect("a string");
        }
        out
    }
}

fn replay(text: &str) -> String {
    let mut story = Story { cluster: Cluster::new(1, Durability::Memory) };
    let mut out = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            writeln!(out, "{line}").expect("a string");
            out.push_str(&story.command(command));
        } else if line.starts_with('#') || line.is_empty() {
            writeln!(out, "{line}").expect("a string");
        }
    }
    out
}

#[test]
fn stories_end_as_written() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut failed = Vec::new();
    let mut count = 0;
    for file in fs::read_dir(dir).expect("the stories") {
        let path = file.expect("a file").path();
        let expected = fs::read_to_string(&path).expect("a story");
        let found = replay(&expected);
        count += 1;
        if std::env::var_os("SKEIN_BLESS").is_some() {
            fs::write(&path, found).expect("the story is written");
        } else if found != expected {
            let line = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
            let line = line.unwrap_or(expected.lines().count().min(found.lines().count()));
            failed.push(format!(
                "{}:{}: expected {:?}, found {:?}",
                path.display(),
                line + 1,
                expected.lines().nth(line),
                found.lines().nth(line)
            ));
        }
    }
    assert!(count >= 6, "{count} stories");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
