//! What only the kernel has of a server's processes, in words: to be compared with another replica's server that stands at the same entry.
//!
//! Told is what a server could ask for, and an image has to bring back: descriptors with the names, positions, flags and locks of their open files, and the attributes of those without a path, and which of them are one open file; directories, umask,
//! limits, name, users, groups and capabilities; and the signals for which there are handlers, which are the runtime's.
//!
//! Left out, as replicas rightly differ: the runtime's own descriptors; numbers of inodes and processes; positions in directories, whose order is the runtime's; of what the server prints into all but
//! that it is that, as it goes to another place on each replica, and an image does not have it; limits other than those of the stack, core files and descriptors, as the others are the host's; further
//! groups, which are those of who started the node; blocked signals, as the server's own are in the arena, and the kernel's change inside the runtime; timer slack, niceness and cores.

use crate::copied::hash;
use crate::extended;
use crate::maps::MEMFD;
use crate::pages::in_time;
use crate::take::descriptors::{Found, Number, numbers, place_among};
use crate::take::field;
use crate::take::objects::DELETED;
use crate::take::settings::{Ids, Told, parse_credentials};
use crate::{MemoryError, Process, Result};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// The most facts about all processes.
const MAX_FACTS: usize = 1 << 20;
/// The longest value of an attribute that is told as it is.
const MAX_SHOWN_BYTES: usize = 64;
/// Flags of open files that a server can ask for.
const FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_ASYNC
    | libc::O_NOFOLLOW
    | libc::O_DIRECTORY
    | libc::O_PATH;
/// The limits that a server has from its node.
const LIMITS: [(&str, libc::__rlimit_resource_t); 3] = [
    ("limit of the stack", libc::RLIMIT_STACK),
    ("limit of core files", libc::RLIMIT_CORE),
    ("limit of descriptors", libc::RLIMIT_NOFILE),
];

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// Its name: `descriptor 7`, `umask`.
    pub name: String,
    /// Of a descriptor, its file. Empty where that is not known: it is a file whose name was removed while it has another one, by which an image opens it.
    pub file: String,
    /// Its value.
    pub value: String,
}

/// A descriptor that others may share the open file of.
struct Opened {
    number: Number,
    /// In words.
    at: String,
}

/// The facts about each of these processes, which stand still; `given` is what the first one was given to print into. `None`: this kernel does not tell them all.
///
/// # Errors
/// A process cannot be read, or not until `deadline`, or there are too many facts.
pub fn of(
    processes: &[Process],
    given: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<Option<Vec<Vec<Fact>>>> {
    let (mut all, mut open) = (Vec::new(), BTreeMap::new());
    let Some(first) = processes.first() else { return Ok(Some(all)) };
    let (ids, mut count) = (Ids::of(first)?, 0);
    for process in processes {
        in_time(deadline)?;
        let mut facts = settings(process, &ids)?;
        let descriptors = descriptors(process, given, &mut open, deadline)?;
        let Some(descriptors) = descriptors else { return Ok(None) };
        facts.extend(descriptors);
        count += facts.len();
        if count > MAX_FACTS {
            return Err(MemoryError::TooMuch("1,048,576 descriptors"));
        }
        all.push(facts);
    }
    Ok(Some(all))
}

fn fact(name: &str, value: String) -> Fact {
    Fact { name: name.to_owned(), file: String::new(), value }
}

fn settings(process: &Process, ids: &Ids) -> Result<Vec<Fact>> {
    let Told { directory, root, umask, limits, title, status } = Told::of(process)?;
    let mut facts = vec![
        fact("name", title.escape_ascii().to_string()),
        fact("working directory", directory),
        fact("root", root),
        fact("umask", format!("{umask:03o}")),
        fact("ignored signals", field(&status, "SigIgn:").to_owned()),
        fact("caught signals", field(&status, "SigCgt:").to_owned()),
    ];
    for (name, resource) in LIMITS {
        let [soft, hard] = limits[resource as usize].map(limit);
        facts.push(fact(name, format!("{soft}, at most {hard}")));
    }
    // Numbers that a server cannot have are the host's.
    if let Ok(Some((rights, _))) = parse_credentials(&status, ids) {
        facts.push(fact("users", list(&rights.users)));
        facts.push(fact("groups", list(&rights.groups)));
        let capabilities = rights.capabilities.map(|set| format!("{set:x}"));
        facts.push(fact("capabilities", capabilities.join(" ")));
    }
    Ok(facts)
}

fn limit(limit: u64) -> String {
    if limit == u64::MAX { "none".to_owned() } else { limit.to_string() }
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

type Open = BTreeMap<(u64, u64), Vec<Opened>>;

fn descriptors(
    process: &Process,
    given: BorrowedFd<'_>,
    open: &mut Open,
    deadline: Instant,
) -> Result<Option<Vec<Fact>>> {
    let (mut facts, mut virtual_ones) = (Vec::new(), Vec::new());
    for (n, fd) in numbers(process)?.into_iter().enumerate() {
        if n.is_multiple_of(1024) {
            in_time(deadline)?;
        }
        let found = Found::of(process, fd)?;
        if found.is_placeholder() {
            virtual_ones.push(fd);
            continue;
        }
        let name = format!("descriptor {fd}");
        let closes = if found.flags & libc::O_CLOEXEC == 0 { "" } else { ", closed at exec" };
        if found.given(&[given]).is_some() {
            facts.push(fact(&name, format!("what the server prints into{closes}")));
            continue;
        }
        let about = fs::metadata(found.path()).map_err(MemoryError::read(found.path()))?;
        let Some(shared) = shared(process, &found, &about, open) else { return Ok(None) };
        let file = file(&found.name, &about);
        facts.push(Fact { name, file, value: value(&found, &about)? + closes + &shared });
    }
    // They keep their numbers from the kernel.
    facts.push(fact("descriptors of the runtime", ranges(&virtual_ones)));
    Ok(Some(facts))
}

/// The file's name, as far as replicas have the same.
fn file(name: &str, about: &Metadata) -> String {
    match name.strip_suffix(DELETED) {
        // `socket:[1234]`
        None => match name.split_once(":[") {
            Some((kind, number)) if number.starts_with(|c: char| c.is_ascii_digit()) => kind,
            _ => name,
        }
        .to_owned(),
        Some(path) => match path.strip_prefix(MEMFD) {
            Some(name) => format!("memory file {name}"),
            None if about.nlink() > 0 => String::new(),
            None => "a removed file".to_owned(),
        },
    }
}

fn value(found: &Found<'_>, about: &Metadata) -> Result<String> {
    let mut flags = found.flags & FLAGS;
    let mut text = String::new();
    if about.is_file() {
        // Once it was without a name.
        flags &= !libc::O_TMPFILE;
        text += &format!("position {}, ", found.position());
    }
    if about.nlink() == 0 {
        flags &= !libc::O_NOFOLLOW;
        text += &format!("{} bytes, ", about.size());
    }
    text += &format!("flags 0{flags:o}");
    let mut locks: Vec<_> = found.locks().map(lock).collect();
    locks.sort_unstable();
    let text = locks.iter().fold(text, |text, lock| text + ", lock " + lock);
    // Others are compared with the files.
    let attributes = if about.nlink() == 0 { attributes(&found.path())? } else { String::new() };
    Ok(text + &attributes)
}

/// The extended attributes of a file without a path.
fn attributes(path: &str) -> Result<String> {
    let all = extended::of(path).map_err(MemoryError::read(path))?;
    let text = all.iter().map(|(name, value)| match value.len() {
        ..=MAX_SHOWN_BYTES => format!(", {}={}", name.escape_ascii(), value.escape_ascii()),
        len => format!(", {}: {len} bytes, {:032x}", name.escape_ascii(), hash(value)),
    });
    Ok(text.collect())
}

/// `1: POSIX  ADVISORY  WRITE 77 fd:01:1234 0 EOF` without the numbers that are the host's.
fn lock(line: &str) -> String {
    let words = line.split_whitespace().enumerate();
    let words = words.filter(|(n, _)| ![0, 4, 5].contains(n)).map(|(_, word)| word);
    words.collect::<Vec<_>>().join(" ")
}

/// In words, the first descriptor with the same open file; `None` when the kernel does not tell.
fn shared(
    process: &Process,
    found: &Found<'_>,
    about: &Metadata,
    open: &mut Open,
) -> Option<String> {
    let others = open.entry((about.dev(), about.ino())).or_default();
    match place_among(others, found.number(), |other| other.number)? {
        Ok(n) => Some(format!(", shared with {}", others[n].at)),
        Err(place) => {
            let at = format!("descriptor {} of process {}", found.fd, process.pid);
            others.insert(place, Opened { number: found.number(), at });
            Some(String::new())
        }
    }
}

/// `3-7 9`
fn ranges(numbers: &[i32]) -> String {
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): (i32, i32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A process that sleeps, as others' descriptors in this one come and go.
    struct Sleeper(Child);

    impl Sleeper {
        /// With these as its first descriptors.
        fn with([first, second, third]: [&File; 3]) -> Self {
            let of = |file: &File| Stdio::from(file.try_clone().unwrap());
            let mut sleep = Command::new("sleep");
            sleep.arg("60").stdin(of(first)).stdout(of(second)).stderr(of(third));
            let sleeper = Self(sleep.spawn().unwrap());
            // It may still be about to become that program: then it has this one's name, and descriptors that are closed at exec.
            let sleeps = || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.0.id())).unwrap();
                stat.contains("(sleep) S ")
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            while !sleeps() {
                assert!(Instant::now() < deadline, "it sleeps");
                std::thread::yield_now();
            }
            sleeper
        }

        fn told(&self, given: &File) -> Vec<Fact> {
            let process = Process { pid: 7, host_pid: self.0.id(), command: String::new() };
            let deadline = Instant::now() + Duration::from_secs(60);
            let all = of(&[process], given.as_fd(), deadline).unwrap();
            all.expect("this kernel has kcmp").remove(0)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// What is told of the descriptors 0, 1 and 2: files and values.
    fn of_files(files: [&File; 3]) -> [(String, String); 3] {
        let told = Sleeper::with(files).told(&tempfile::tempfile().unwrap());
        [0, 1, 2].map(|fd| {
            let name = format!("descriptor {fd}");
            let fact = told.iter().find(|fact| fact.name == name).unwrap();
            (fact.file.clone(), fact.value.clone())
        })
    }

    #[test]
    fn an_open_file_is_told_with_its_path_position_flags_and_locks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = File::options().append(true).create(true).open(&path).unwrap();
        file.write_all(b"four").unwrap();
        let other = File::open(&path).unwrap();
        let told = of_files([&file, &other, &file]);
        let value = "position 4, flags 02001";
        let told = told.each_ref().map(|(file, value)| (&**file, &**value));
        let name = path.to_str().unwrap();
        let shared = format!("{value}, shared with descriptor 0 of process 7");
        assert_eq!(told, [(name, value), (name, "position 0, flags 00"), (name, &*shared)]);

        file.seek(SeekFrom::Start(2)).unwrap();
        // SAFETY: numbers only.
        unsafe {
            libc::flock(file.as_raw_fd(), libc::LOCK_EX);
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        }
        let [(_, told), ..] = of_files([&file, &other, &other]);
        assert_eq!(told, "position 2, flags 04001, lock FLOCK ADVISORY WRITE 0 EOF");
    }

    #[test]
    fn a_file_without_a_name_is_told_without_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        std::fs::hard_link(&path, dir.path().join("other")).unwrap();
        std::fs::remove_file(&path).unwrap();
        let told = of_files([&file; 3]);
        assert_eq!(told[0], (String::new(), "position 0, flags 01".into()));
        std::fs::remove_file(dir.path().join("other")).unwrap();
        let told = of_files([&file; 3]);
        assert_eq!(told[0], ("a removed file".into(), "position 0, 0 bytes, flags 01".into()));
        let about = file.metadata().unwrap();
        assert_eq!(super::file("/memfd:a b (deleted)", &about), "memory file a b");
        assert_eq!(super::file("socket:[77]", &about), "socket");
        assert_eq!(super::file("anon_inode:[eventpoll]", &about), "anon_inode:[eventpoll]");
    }

    #[test]
    fn attributes_of_a_file_without_a_path_are_told() {
        let file = tempfile::tempfile().unwrap();
        let set = |name: &std::ffi::CStr, value: &[u8]| {
            let (fd, at) = (file.as_raw_fd(), value.as_ptr().cast());
            // SAFETY: a terminated string, and a live buffer of this length.
            unsafe { libc::fsetxattr(fd, name.as_ptr(), at, value.len(), 0) }
        };
        if set(c"user.b", &[b'x'; 65]) < 0 {
            // This file system has none.
            return;
        }
        assert_eq!(set(c"user.a", b"1\n"), 0);
        let told = of_files([&file; 3]);
        let (_, end) = told[0].1.split_once(", user.a=").unwrap();
        assert_eq!(end, format!("1\\n, user.b: 65 bytes, {:032x}", hash(&[b'x'; 65])));
    }

    #[test]
    fn of_what_the_server_prints_into_is_told_only_that() {
        let [mut given, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        given.write_all(b"printed").unwrap();
        let told = Sleeper::with([&other, &given, &other]).told(&given);
        let told = told.into_iter().find(|fact| fact.name == "descriptor 1").unwrap();
        assert_eq!(told, fact("descriptor 1", "what the server prints into".into()));
    }

    #[test]
    fn what_the_server_prints_into_may_be_open_twice() {
        // SAFETY: a name that ends with a zero.
        let fd = unsafe { libc::memfd_create(c"printed".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: it was just made, and nobody else has it.
        let given = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        let again = File::options().append(true).open(format!("/proc/self/fd/{fd}")).unwrap();
        let other = tempfile::tempfile().unwrap();
        let told = Sleeper::with([&other, &again, &given]).told(&given);
        for name in ["descriptor 1", "descriptor 2"] {
            let told = told.iter().find(|fact| fact.name == name).unwrap();
            assert_eq!(told.value, "what the server prints into");
        }
    }

    #[test]
    fn one_of_many_open_files_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "").unwrap();
        let files: Vec<File> = (0..300).map(|_| File::open(&path).unwrap()).collect();
        let own = |file: &File| (std::process::id(), file.as_raw_fd());
        let mut known: Vec<Number> = Vec::new();
        for file in &files {
            let place = place_among(&known, own(file), |number| *number).unwrap().unwrap_err();
            known.insert(place, own(file));
        }
        for file in &files {
            let copy = file.try_clone().unwrap();
            let place = place_among(&known, own(&copy), |number| *number).unwrap();
            assert_eq!(place.map(|n| known[n]), Ok(own(file)));
        }
    }

    #[test]
    fn what_keeps_a_number_is_told_as_the_runtimes() {
        let null = |flags| {
            // SAFETY: a path that ends with a zero.
            let fd = unsafe { libc::open(c"/dev/null".as_ptr(), flags | libc::O_CLOEXEC) };
            // SAFETY: it was just made, and nobody else has it.
            unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) }
        };
        let (placeholder, null) = (null(libc::O_PATH), null(libc::O_RDONLY));
        let told = Sleeper::with([&placeholder, &null, &placeholder]).told(&null);
        let names: Vec<_> = told.iter().map(|fact| &*fact.name).collect();
        assert!(names.contains(&"descriptor 1") && !names.contains(&"descriptor 0"), "{names:?}");
        assert_eq!(told.last(), Some(&fact("descriptors of the runtime", "0 2".into())));
    }

    #[test]
    fn what_a_process_has_told_the_kernel_is_told() {
        let null = File::open("/dev/null").unwrap();
        let all = Sleeper::with([&null; 3]).told(&null);
        let value = |name: &str| &*all.iter().find(|fact| fact.name == name).unwrap().value;
        let here = std::env::current_dir().unwrap();
        assert_eq!(value("working directory"), here.to_str().unwrap());
        assert_eq!((value("name"), value("root")), ("sleep", "/"));
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes to a local.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now) };
        let [soft, hard] = [now.rlim_cur, now.rlim_max].map(limit);
        assert_eq!(value("limit of descriptors"), format!("{soft}, at most {hard}"));
        // SAFETY: no memory.
        let user = unsafe { libc::getuid() };
        assert_eq!(value("users"), [user; 4].map(|user| user.to_string()).join(" "));
        for name in ["umask", "ignored signals", "caught signals", "capabilities"] {
            assert_ne!(value(name), "", "{name}");
        }
    }

    #[test]
    fn numbers_in_a_row_are_one_range() {
        assert_eq!(ranges(&[3, 4, 5, 7, 9, 10]), "3-5 7 9-10");
        assert_eq!(ranges(&[]), "");
    }
}
