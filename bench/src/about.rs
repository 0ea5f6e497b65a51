//! The head of every file of results: time, commit, machine, versions and the command.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process;
use super::stats::percentile;
use super::target::data_root;
use skein_testkit::cluster::find_command;
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// The head of a file of results.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct About {
    /// Seconds since 1970 when it ended.
    pub unix_time_s: u64,
    /// The measured commit, with `+` when files of the crates have uncommitted changes.
    pub commit: String,
    /// The command line that repeats the measurement.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// The versions of the measured programs, in their own words.
    pub versions: Vec<String>,
}

/// The machine and how quiet it was.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// How many of them this process may use.
    pub cores: usize,
    /// Memory [MiB].
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Time to append 512 bytes durably on the disk of the logs: one median per probe [us].
    pub sync_us: Vec<f64>,
}

impl About {
    /// Probes the machine, `skein` and `programs`, each a command that prints its version.
    pub fn look<'a>(
        command: String,
        programs: impl IntoIterator<Item = &'a [&'a str]>,
    ) -> Outcome<Self> {
        let skein = find_command()?;
        Ok(Self {
            unix_time_s: unix_time_s(),
            commit: commit(&skein),
            command,
            machine: machine()?,
            versions: versions(&skein, programs)?,
        })
    }

    /// Day of the measurement, for people, in UTC.
    pub fn day(&self) -> String {
        day(self.unix_time_s / 86_400)
    }
}

/// The `days`th day after 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn day(days: u64) -> String {
    let since = days + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{of_month:02}")
}

/// Reads a file of [`write`]; nothing where there is no such file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Outcome<Option<T>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome.map_err(|error| Failure::of(path.display(), error))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| Failure::of(path.display(), error))
}

/// Writes results as JSON.
pub fn write(path: &Path, results: &impl Serialize) -> Outcome {
    let failed = |error: std::io::Error| Failure::of(path.display(), error);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut text = serde_json::to_string_pretty(results)
        .map_err(|error| Failure::of("cannot write results", error))?;
    text.push('\n');
    std::fs::write(path, text).map_err(failed)
}

/// Looks at the machine.
fn machine() -> Outcome<Machine> {
    let cpuinfo = text_of("/proc/cpuinfo")?;
    let meminfo = text_of("/proc/meminfo")?;
    let value = |text: &str, key: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let memory = value(&meminfo, "MemTotal");
    let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    Ok(Machine {
        cpu: value(&cpuinfo, "model name"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory_kib / 1024,
        kernel: text_of("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        sync_us: Vec::new(),
    })
}

/// The number of processes that wanted a core in the last minute.
pub fn load_average() -> Outcome<f64> {
    let text = text_of("/proc/loadavg")?;
    Ok(text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default())
}

/// The first line of each program's version output.
fn versions<'a>(
    skein: &Path,
    programs: impl IntoIterator<Item = &'a [&'a str]>,
) -> Outcome<Vec<String>> {
    let skein = skein.display().to_string();
    let mut all = vec![first_line(&[&skein, "--version"])?];
    for words in programs {
        let line = first_line(words)?;
        if !all.contains(&line) {
            all.push(line);
        }
    }
    Ok(all)
}

fn first_line(words: &[&str]) -> Outcome<String> {
    // Some programs print it on standard error.
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| Failure::of(format!("cannot run {}", words[0]), error))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// The commit that `skein` was built from: `HEAD` if none of its sources is newer than the file, else the newest commit that is not newer.
fn commit(skein: &Path) -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(workspace::root()).args(arguments);
        process::output(&mut command, Duration::from_secs(10)).unwrap_or_default()
    };
    let built = skein.metadata().and_then(|data| data.modified()).ok();
    let newer = |path: &str| {
        let changed = workspace::root().join(path).metadata().and_then(|data| data.modified());
        changed.ok() > built
    };
    let sources = git(&["ls-files", "--", "crates", "Cargo.toml", "Cargo.lock"]);
    let current = !sources.is_empty() && !sources.lines().any(newer);
    let built_s = built.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let before = format!("--before={}", built_s.unwrap_or_default().as_secs());
    let mut list = vec!["rev-list", "-1", "--abbrev-commit", "--abbrev=12"];
    if !current {
        list.push(&before);
    }
    list.push("HEAD");
    let hash = git(&list);
    if hash.trim().is_empty() {
        return "unknown".to_owned();
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "crates"]);
    format!("{}{}", hash.trim(), if current && changed.is_empty() { "" } else { "+" })
}

/// Seconds since 1970.
pub fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn text_of(path: &str) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| Failure::of(path, error))
}

/// Time of the disk under the logs to make an append durable: the median of 100 [us].
pub fn sync_us() -> Outcome<f64> {
    time_sync().map_err(|error| Failure::of("cannot try out the disk", error))
}

fn time_sync() -> std::io::Result<f64> {
    let mut file = tempfile::tempfile_in(data_root())?;
    // As for a log, the file is filled ahead.
    file.write_all(&[0; 64 << 10])?;
    file.sync_all()?;
    let mut times_us = Vec::new();
    for number in 0..100 {
        let start = Instant::now();
        file.write_all_at(&[1; 512], number * 512)?;
        file.sync_data()?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(percentile(&mut times_us, 50.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_date() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(11_016), "2000-02-29");
        assert_eq!(day(20_778), "2026-11-21");
    }
}
