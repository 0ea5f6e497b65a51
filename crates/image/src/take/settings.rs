//! What a process has told the kernel about itself: its users, groups and capabilities, its limits, its directories, its name.

use super::{Image, field, refused};
use crate::proc;
use crate::processes::Process;
use crate::{MemoryError, Result};
use skein_arena::restore::{self, Credentials, LIMITS, NO_NAME};
use std::fs;

/// What has no number in a server is shown so (`overflowgid`).
const NO_GROUP: u32 = 65534;

/// What a process has told the kernel, which the kernel tells others.
pub(crate) struct Told {
    pub(crate) directory: String,
    pub(crate) root: String,
    pub(crate) umask: u32,
    /// Soft and hard ones, in the kernel's order.
    pub(crate) limits: [[u64; 2]; LIMITS],
    /// Its name.
    pub(crate) title: Vec<u8>,
    /// `/proc/PID/status`.
    pub(crate) status: String,
}

impl Told {
    pub(crate) fn of(process: &Process) -> Result<Self> {
        let of = |name: &str| format!("/proc/{}/{name}", process.host_pid);
        let read = |name| proc::text(of(name)).map_err(MemoryError::read(of(name)));
        let link = |name| {
            let link = fs::read_link(of(name)).map_err(MemoryError::read(of(name)))?;
            Ok(link.to_string_lossy().into_owned())
        };
        // A name may be cut within a character, or be in no encoding at all.
        let status = proc::read(of("status")).map_err(MemoryError::read(of("status")))?;
        let status = String::from_utf8_lossy(&status).into_owned();
        let umask = u32::from_str_radix(field(&status, "Umask:"), 8);
        let mut title = proc::read(of("comm")).map_err(MemoryError::read(of("comm")))?;
        title.truncate(title.strip_suffix(b"\n").unwrap_or(&title).len());
        Ok(Self {
            directory: link("cwd")?,
            root: link("root")?,
            umask: umask.map_err(|_| wrong(process, "status"))?,
            limits: parse_limits(&read("limits")?).ok_or_else(|| wrong(process, "limits"))?,
            title,
            status,
        })
    }
}

fn wrong(process: &Process, name: &str) -> MemoryError {
    let error = std::io::Error::other("it is not understood");
    MemoryError::Read { what: format!("/proc/{}/{name}", process.host_pid), error }
}

/// The numbers of users and groups that a server sees, by those that this process sees.
pub(crate) struct Ids {
    users: Vec<[u64; 3]>,
    groups: Vec<[u64; 3]>,
}

impl Ids {
    pub(crate) fn of(process: &Process) -> Result<Self> {
        let map = |name: &str| {
            let path = format!("/proc/{}/{name}", process.host_pid);
            let text = proc::text(&path).map_err(MemoryError::read(path))?;
            Ok(parse_map(&text))
        };
        Ok(Self { users: map("uid_map")?, groups: map("gid_map")? })
    }

    pub(super) fn user(&self, outside: u32) -> Result<u32> {
        inside(&self.users, outside, "user")
    }

    pub(super) fn group(&self, outside: u32) -> Result<u32> {
        inside(&self.groups, outside, "group")
    }

    /// A group that a process has beside its own. Those of an ordinary user cannot be given up, and his server sees all but one as the kernel shows what has no number.
    fn other_group(&self, outside: u32) -> Result<u32> {
        self.group(outside)
            .or_else(|error| if self.is_single() { Ok(NO_GROUP) } else { Err(error) })
    }

    /// Whether the server has one group only: it is an ordinary user's.
    pub(crate) fn is_single(&self) -> bool {
        matches!(&self.groups[..], [[_, _, 1]])
    }
}

/// Lines of `inside outside count`.
fn parse_map(text: &str) -> Vec<[u64; 3]> {
    let row = |line: &str| {
        let mut words = line.split_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        Some([next()?, next()?, next()?])
    };
    text.lines().filter_map(row).collect()
}

fn inside(map: &[[u64; 3]], outside: u32, what: &str) -> Result<u32> {
    let place = |[first, from, count]: &[u64; 3]| {
        let at = u64::from(outside).checked_sub(*from)?;
        (at < *count).then(|| (first + at) as u32)
    };
    map.iter().find_map(place).ok_or_else(|| {
        MemoryError::CannotHold(format!("{what} {outside} has no number in the server"))
    })
}

/// Soft and hard limits, in the kernel's order: columns of fixed width.
fn parse_limits(text: &str) -> Option<[[u64; 2]; LIMITS]> {
    const SOFT_AT: usize = 26;
    const HARD_AT: usize = 47;
    let number = |text: &str| match text.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    let mut limits = [[0; 2]; LIMITS];
    let mut lines = text.lines().skip(1);
    for limit in &mut limits {
        let line = lines.next()?;
        *limit = [number(line.get(SOFT_AT..)?)?, number(line.get(HARD_AT..)?)?];
    }
    Some(limits)
}

pub(crate) fn parse_credentials(
    status: &str,
    ids: &Ids,
) -> Result<Option<(Credentials, Vec<u32>)>> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        field(status, name).split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let four = |name: &str| <[u32; 4]>::try_from(numbers(name)?).ok();
    let set = |name: &str| u64::from_str_radix(field(status, name), 16).ok();
    let capabilities = || {
        Some([set("CapEff:")?, set("CapPrm:")?, set("CapInh:")?, set("CapBnd:")?, set("CapAmb:")?])
    };
    let (Some(mut users), Some(mut groups), Some(others), Some(capabilities)) =
        (four("Uid:"), four("Gid:"), numbers("Groups:"), capabilities())
    else {
        return Ok(None);
    };
    for user in &mut users {
        *user = ids.user(*user)?;
    }
    for group in &mut groups {
        *group = ids.group(*group)?;
    }
    let others = others.into_iter().map(|group| ids.other_group(group)).collect::<Result<_>>()?;
    Ok(Some((Credentials { users, groups, capabilities, ..Credentials::default() }, others)))
}

impl Image<'_, '_> {
    /// The numbers of users and groups in the server.
    pub(super) fn ids(&mut self, process: &Process) -> Result<&Ids> {
        if self.ids.is_none() {
            self.ids = Some(Ids::of(process)?);
        }
        Ok(self.ids.as_ref().expect("it was just stored"))
    }

    /// Fills in what a process has told the kernel about itself.
    pub(super) fn settings(
        &mut self,
        process: &Process,
        first: &Process,
        found: &mut restore::Process,
    ) -> Result<()> {
        let of = |process: &Process, name: &str| format!("/proc/{}/{name}", process.host_pid);
        let read = |path: String| proc::text(&path).map_err(MemoryError::read(path));
        let Told { directory, root, umask, limits, title, status } = Told::of(process)?;
        if directory.ends_with(" (deleted)") {
            return refused(process, format!("a removed working directory, {directory}"));
        }
        // A name below it leads through it.
        if self.is_closed(&format!("{directory}/.")) {
            return refused(
                process,
                format!("a working directory that it has closed, {directory}"),
            );
        }
        found.directory = self.name(&directory);
        found.root = if root == "/" { NO_NAME } else { self.name(&root) };
        let adjusted = read(of(process, "oom_score_adj"))?;
        if self.may_have_set {
            let score =
                adjusted.trim_ascii().parse().map_err(|_| wrong(process, "oom_score_adj"))?;
            let filter = read(of(process, "coredump_filter")).unwrap_or_default();
            let filter = u32::from_str_radix(filter.trim_ascii(), 16).unwrap_or(0);
            self.own_settings.push(restore::Settings { score, filter });
        } else if adjusted != read(of(first, "oom_score_adj"))? {
            // Runtimes of before do not say that a server has set it.
            return refused(process, "its own oom_score_adj");
        }
        (found.umask, found.limits) = (umask, limits);
        let len = title.len().min(found.title.len() - 1);
        found.title[..len].copy_from_slice(&title[..len]);
        let (mut credentials, groups) = parse_credentials(&status, self.ids(process)?)?
            .ok_or_else(|| wrong(process, "status"))?;
        credentials.others = [self.groups.len() as u32, groups.len() as u32];
        self.groups.extend(groups);
        found.credentials = self.credentials.len() as u32;
        self.credentials.push(credentials);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_users_are_the_servers() {
        let map = parse_map("         0       1500          1\n         1     100000      65536\n");
        assert_eq!(inside(&map, 1500, "user").unwrap(), 0);
        assert_eq!(inside(&map, 100_032, "user").unwrap(), 33);
        assert!(inside(&map, 7, "user").unwrap_err().to_string().contains("user 7"));
    }

    #[test]
    fn limits_of_this_process_are_read() {
        let text = fs::read_to_string("/proc/self/limits").unwrap();
        let limits = parse_limits(&text).unwrap();
        for (resource, limit) in limits.iter().enumerate() {
            let mut known = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the kernel writes to a local.
            let done =
                unsafe { libc::getrlimit(resource as libc::__rlimit_resource_t, &raw mut known) };
            assert_eq!((done, *limit), (0, [known.rlim_cur, known.rlim_max]), "{resource}");
        }
        assert_eq!(parse_limits("Limit\nMax cpu time  x"), None);
    }

    #[test]
    fn rights_are_read() {
        let status = "Uid:\t33\t33\t0\t33\nGid:\t5\t5\t5\t5\nGroups:\t5 33 \nCapInh:\t0\nCapPrm:\t01\nCapEff:\t0\nCapBnd:\t3f\nCapAmb:\t0\n";
        let same = vec![[0, 0, 100]];
        let ids = Ids { users: same.clone(), groups: same };
        let (found, others) = parse_credentials(status, &ids).unwrap().unwrap();
        assert_eq!((found.users, found.groups), ([33, 33, 0, 33], [5; 4]));
        assert_eq!((found.capabilities, others), ([0, 1, 0, 0x3f, 0], vec![5, 33]));
        assert!(parse_credentials("Uid:\t1\n", &ids).unwrap().is_none());
    }
}
