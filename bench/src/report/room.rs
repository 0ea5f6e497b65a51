//! How much of the distance to native is CPU time, and how much is waiting.

use super::goals::with_goals;
use super::servers::ratio;
use super::text::{table, wide};
use crate::load::Throughput;
use crate::results::{Results, Sample};
use crate::stats::Spread;
use crate::target::Target;

/// The targets that are compared with native.
const TARGETS: [Target; 5] =
    [Target::Proxy, Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync, Target::Bare];

/// A paragraph and a table.
pub fn room(results: &Results) -> String {
    let cores = results.about.machine.cores;
    let connections = format!("{} connections", results.clients);
    let head = [
        &connections,
        "requests a second, of native",
        "CPU time a request, clients' and all replicas', us",
        "with full cores, of native",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for server in with_goals(results) {
        for target in TARGETS {
            let rate = |sample: &Sample| rate(&sample.throughput);
            let reached = results.against_native(server, target, rate, ratio);
            let used = results.spread(server, target, |sample| Some(used_us(sample)));
            let values = results.of(server, target).filter_map(|sample| {
                let native = results.of(server, Target::Native).find(|at| at.round == sample.round);
                Some(full(used_us(sample), cores) / rate(native?)?)
            });
            let full = Spread::of(values.collect());
            let what = format!("{}, {}", server.name(), target.name());
            rows.push(vec![what, wide(reached, 2), wide(used, 1), wide(full, 2)]);
        }
    }
    format!(
        "What is missing is partly CPU time and partly waiting. The last column is what the CPU time that a request takes, all replicas' and the\n\
         clients' together, would allow if all {cores} cores were busy with nothing else; the plain proxy, which replicates nothing, is there for\n\
         comparison.\n\n{}\n",
        table(&rows)
    )
}

/// Requests a second, of all operations one after the other.
fn rate(operations: &[Throughput]) -> Option<f64> {
    let count = operations.len();
    let seconds: f64 = operations.iter().map(|at| 1.0 / at.per_second).sum();
    (count > 0).then(|| count as f64 / seconds)
}

fn used_us(sample: &Sample) -> f64 {
    sample.cpu_all_us + sample.cpu_load_us
}

/// Requests a second if so many cores did nothing else.
fn full(used_us: f64, cores: usize) -> f64 {
    cores as f64 * 1e6 / used_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_two_operations_is_that_of_one_after_the_other() {
        let at = |per_second| Throughput {
            operation: String::new(),
            per_second,
            p50_us: 0.0,
            p99_us: 0.0,
            p999_us: None,
        };
        assert_eq!(rate(&[]), None);
        // A hundred take a second, and a hundred more four.
        assert_eq!(rate(&[at(100.0), at(25.0)]), Some(40.0));
    }

    #[test]
    fn full_cores_share_what_a_request_takes() {
        assert_eq!(full(40.0, 2), 50_000.0);
    }
}
