//! The README's summary: each server in each way, and the outage.

use super::Page;
use super::servers::{added, has, label, per_second, ratio};
use super::text::{cell, replace_between, table, wide};
use crate::results::{Results, Sample};
use crate::servers::Server;
use crate::stats::Spread;
use crate::target::Target;
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// Between these lines the figures are replaced.
const BEGIN: &str = "<!-- figures: cargo xtask bench --report -->";
const END: &str = "<!-- end of figures -->";

/// The README with the figures of the results.
pub fn pages() -> Outcome<Vec<Page>> {
    let path = workspace::root().join("README.md");
    let text =
        std::fs::read_to_string(&path).map_err(|error| Failure::of(path.display(), error))?;
    let figures = format!("\n{}\n", summary(&super::latest()?));
    let text = replace_between(&text, BEGIN, END, &figures)
        .ok_or_else(|| Failure(format!("README.md has no line {BEGIN}")))?;
    Ok(vec![Page { path: "README.md".to_owned(), text }])
}

fn summary(results: &Results) -> String {
    let head = [
        "of native",
        "plain proxy",
        "1 replica, memory",
        "3 replicas, memory",
        "3 replicas, fsync",
        "leader's CPU (3, memory)",
        "added p50 us (3, memory)",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for server in Server::ALL.iter().copied().filter(|server| has(results, *server)) {
        for operation in server.workload().operations() {
            let mut row = vec![format!("{} {}", server.name(), label(operation))];
            for target in
                [Target::Proxy, Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync]
            {
                let measure = |sample: &Sample| per_second(sample, operation);
                row.push(cell(results.against_native(server, target, measure, ratio), 2));
            }
            let cpu = |sample: &Sample| Some(sample.cpu_us);
            let p50 = |sample: &Sample| Some(sample.alone.p50_us);
            let cpu = results.against_native(server, Target::ThreeMemory, cpu, ratio);
            row.push(cell(cpu, 2));
            let asked = *operation == server.workload().alone_operation();
            let more = results.against_native(server, Target::ThreeMemory, p50, added);
            row.push(if asked { cell(more, 0) } else { String::new() });
            rows.push(row);
        }
    }
    let outage = wide(Spread::of(results.outages_ms.clone()), 0);
    format!(
        "{}\nWithout an answer after `kill -9` of the leader (3 replicas of redis, fsync): {outage} ms. `{}`,\n\
         {} at commit {}.\n",
        table(&rows),
        results.about.command,
        results.about.day(),
        results.about.commit,
    )
}
