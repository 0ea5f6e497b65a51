//! Logs that do not begin with entry 1, and logs of the format that knew no others.

mod cluster;
mod support;

use cluster::Cluster;
use skein_log::{
    Base, Config, Consensus, Durability, Kind, NewBase, Persist, Place, Recovered, Role, StepError,
    disk::{
        DirDisk, Disk, StoredDir,
        sim::{Faults, SimDisk, SimRng},
    },
    wal::{Opened, Wal, WalError},
};
use skein_model::{LogIndex, ReplicaId, Term};
use std::{fs, path::Path, sync::Arc};
use support::{State, entry, options, persist};

fn base() -> Base {
    Base { index: LogIndex(100), term: Term(3), ..Base::default() }
}

fn begin(disk: &SimDisk) -> Result<Opened, WalError> {
    Wal::create_after(Arc::new(disk.clone()), options(), base())
}

fn reopen(disk: &SimDisk) -> Result<Opened, WalError> {
    Wal::open(Arc::new(disk.clone()), options())
}

/// The entries 101 to 120 in terms 3 and 5, the last ones written twice, in several segments.
fn fill(wal: &mut Wal) -> Result<(), WalError> {
    for n in 101..=112 {
        let term = if n < 105 { 3 } else { 5 };
        wal.append(&persist(Some((term, n - 1)), vec![entry(n, term, 60)]))?;
        wal.sync()?;
    }
    wal.append(&persist(Some((6, 110)), (111..=120).map(|n| entry(n, 6, 90)).collect()))?;
    wal.sync()?;
    wal.witness()
}

fn expected(n: u64) -> skein_log::LogEntry {
    let term = [(105, 3), (111, 5)].iter().find(|(below, _)| n < *below).map_or(6, |(_, t)| *t);
    entry(n, term, if term == 6 { 90 } else { 60 })
}

#[test]
fn a_log_that_begins_behind_entry_100_is_recovered_and_read() {
    let disk = SimDisk::new();
    let mut wal = begin(&disk).unwrap().wal;
    assert_eq!((wal.first_index(), wal.last_index()), (LogIndex(101), LogIndex(100)));
    fill(&mut wal).unwrap();
    let refused = wal.reader().read(LogIndex(100), LogIndex(102), 1000).unwrap_err();
    assert!(matches!(refused, WalError::BelowBase { index: 100, first: 101 }), "{refused}");
    drop(wal);
    let Opened { mut wal, recovered, .. } = reopen(&disk).unwrap();
    assert_eq!((wal.first_index(), recovered.base()), (LogIndex(101), &base()));
    assert_eq!(recovered.hard_state.commit, LogIndex(110));
    let terms = [99, 100, 101, 110, 120, 121].map(|n| recovered.term(LogIndex(n)).map(|t| t.0));
    assert_eq!(terms, [None, Some(3), Some(3), Some(5), Some(6), None]);
    let read = wal.reader().read(LogIndex(101), LogIndex(120), usize::MAX).unwrap();
    assert_eq!(read, (101..=120).map(expected).collect::<Vec<_>>());
    // All that there is may be overwritten, and no more.
    wal.append(&persist(Some((7, 100)), vec![entry(101, 7, 10)])).unwrap();
    wal.sync().unwrap();
    drop(wal);
    let opened = reopen(&disk).unwrap();
    assert_eq!(opened.recovered.last_index(), LogIndex(101));
    assert_eq!(opened.recovered.term(LogIndex(101)), Some(Term(7)));
}

#[test]
fn an_empty_log_with_a_base_knows_what_was_committed() {
    let disk = SimDisk::new();
    drop(begin(&disk).unwrap());
    let recovered = reopen(&disk).unwrap().recovered;
    assert_eq!(recovered.last_index(), LogIndex(100));
    assert_eq!((recovered.hard_state.term, recovered.hard_state.commit), (Term(3), LogIndex(100)));
}

#[test]
fn a_crash_at_every_operation_keeps_the_base() {
    let full = SimDisk::new();
    fill(&mut begin(&full).unwrap().wal).unwrap();
    for stop_after in 0..full.operations() {
        let disk = SimDisk::new();
        disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
        let begun = begin(&disk).map(|mut opened| fill(&mut opened.wal)).is_ok();
        disk.crash(&mut SimRng::new(stop_after));
        let opened = if begun { reopen(&disk) } else { begin(&disk) };
        let opened = opened.unwrap_or_else(|error| panic!("after {stop_after}: {error}"));
        assert_eq!(opened.recovered.base(), &base());
        let last = opened.recovered.last_index();
        let read = match last {
            LogIndex(100) => Vec::new(),
            last => opened.wal.reader().read(LogIndex(101), last, usize::MAX).unwrap(),
        };
        assert_eq!(read.len() as u64, last.0 - 100);
        assert!(read.iter().all(|e| *e == expected(e.index.0) || *e == entry(e.index.0, 5, 60)));
    }
}

#[test]
fn a_log_whose_base_is_unreadable_is_refused() {
    let disk = SimDisk::new();
    drop(begin(&disk).unwrap());
    let name = "0000000000000001.wal";
    for at in [96, 130, 140] {
        let damaged = disk.fork();
        let mut bytes = damaged.bytes(name).unwrap();
        bytes[at] ^= 1;
        damaged.set_bytes(name, bytes);
        let line = reopen(&damaged).err().expect("damage is refused").to_string();
        assert!(line.contains("damaged at byte 96"), "{line}");
    }
    // Nor when it was begun a moment ago, and nothing says yet that it was durable.
    let mut begun = 0;
    for stop_after in 0..disk.operations() {
        let disk = SimDisk::new();
        disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
        drop(begin(&disk));
        disk.crash(&mut SimRng::new(stop_after));
        if reopen(&disk.fork()).is_err() {
            continue;
        }
        begun += 1;
        let mut bytes = disk.bytes(name).unwrap();
        bytes[100] ^= 1;
        disk.set_bytes(name, bytes);
        assert!(reopen(&disk).is_err(), "stopped after {stop_after} operations");
    }
    assert!(begun > 0);
}

/// A copy of a log that an earlier version wrote.
fn stored_log(format: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format);
    for file in fs::read_dir(stored).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), root.path().join(file.file_name())).unwrap();
    }
    root
}

/// The versions in the headers of all segments.
fn versions(root: &Path) -> Vec<u8> {
    let names = DirDisk::open(root).unwrap().list().unwrap();
    let mut names: Vec<_> = names.into_iter().filter(|name| name.ends_with(".wal")).collect();
    names.sort_unstable();
    names.iter().map(|name| fs::read(root.join(name)).unwrap()[8]).collect()
}

#[test]
fn a_log_of_the_format_with_a_base_in_front_is_read_and_goes_on_in_the_next() {
    let root = stored_log("format3");
    let looked = Wal::look(Arc::new(StoredDir::new(root.path())), options()).unwrap();
    assert_eq!((looked.first, looked.last), (LogIndex(101), LogIndex(120)));
    let disk = Arc::new(DirDisk::open(root.path()).unwrap());
    let Opened { mut wal, recovered, .. } = Wal::open(disk.clone(), options()).unwrap();
    assert_eq!(recovered.base(), &base());
    assert_eq!((recovered.hard_state.term, recovered.hard_state.commit.0), (Term(6), 110));
    let read = wal.reader().read(LogIndex(101), LogIndex(120), usize::MAX).unwrap();
    assert_eq!(read, (101..=120).map(expected).collect::<Vec<_>>());
    assert_eq!(versions(root.path()), [3; 5]);
    wal.append(&persist(None, (121..=140).map(|n| entry(n, 6, 60)).collect())).unwrap();
    wal.sync().unwrap();
    drop(wal);
    let Opened { mut wal, recovered, .. } = Wal::open(disk.clone(), options()).unwrap();
    assert_eq!((recovered.base(), recovered.last_index()), (&base(), LogIndex(140)));
    let (old, new) = versions(root.path()).into_iter().partition::<Vec<_>, _>(|v| *v == 3);
    assert!(old.len() == 5 && !new.is_empty() && new.iter().all(|v| *v == 6), "{old:?} {new:?}");
    // All of the old format goes when its entries are forgotten.
    let later = Base { index: LogIndex(139), term: Term(6), ..Base::default() };
    let forget =
        Persist { base: Some(NewBase::Forget(Box::new(later.clone()))), ..persist(None, vec![]) };
    wal.append(&forget).unwrap();
    wal.prepare().unwrap();
    drop(wal);
    assert!(versions(root.path()).iter().all(|version| *version == 6));
    let recovered = Wal::open(disk, options()).unwrap().recovered;
    assert_eq!((recovered.base(), recovered.last_index()), (&later, LogIndex(140)));
}

#[test]
fn a_log_of_the_format_whose_members_have_no_places_is_read_and_goes_on_in_the_next() {
    let root = stored_log("format4");
    let looked = Wal::look(Arc::new(StoredDir::new(root.path())), options()).unwrap();
    assert_eq!((looked.first, looked.last), (LogIndex(36), LogIndex(60)));
    let disk = Arc::new(DirDisk::open(root.path()).unwrap());
    let Opened { mut wal, recovered, .. } = Wal::open(disk.clone(), options()).unwrap();
    let base = recovered.base().clone();
    assert_eq!((base.index, base.term), (LogIndex(35), Term(3)));
    let wanted = |n| entry(n, if n < 41 { 3 } else { 4 }, 60);
    let read = wal.reader().read(LogIndex(36), LogIndex(60), usize::MAX).unwrap();
    assert_eq!(read, (36..=60).map(wanted).collect::<Vec<_>>());
    // The configuration says where they are, of those that it knows.
    let mut config = Config::new(ReplicaId(1), [1, 2, 9].map(ReplicaId).to_vec());
    config.places = [1, 2, 9].map(|id| (ReplicaId(id), Place::at(format!("host-{id}")))).into();
    let members =
        Consensus::new(config, recovered, Some(Box::new(wal.reader()))).unwrap().members();
    let known = |id: u64, at: &str, learns| (id, at.to_owned(), true, learns);
    assert_eq!(
        members
            .iter()
            .map(|m| (m.id.0, m.place.address.clone(), m.votes, m.learns))
            .collect::<Vec<_>>(),
        [known(1, "host-1", false), known(2, "host-2", false), known(3, "", true)]
    );
    wal.append(&persist(None, (61..=80).map(|n| entry(n, 4, 60)).collect())).unwrap();
    wal.sync().unwrap();
    wal.append(&Persist {
        base: Some(NewBase::Forget(Box::new(Base { index: LogIndex(79), term: Term(4), ..base }))),
        ..persist(None, vec![])
    })
    .unwrap();
    wal.prepare().unwrap();
    drop(wal);
    assert!(versions(root.path()).iter().all(|version| *version == 6));
    assert_eq!(Wal::open(disk, options()).unwrap().recovered.last_index(), LogIndex(80));
}

/// It was written by a program of that time.
#[test]
fn a_log_of_the_format_whose_members_have_no_kinds_is_read_and_goes_on_in_the_next() {
    let root = stored_log("format5");
    assert_eq!(versions(root.path()), [5; 5]);
    let disk = Arc::new(DirDisk::open(root.path()).unwrap());
    let Opened { mut wal, recovered, .. } = Wal::open(disk.clone(), options()).unwrap();
    let base = recovered.base().clone();
    assert_eq!((base.index, base.term, base.to_bytes()[16]), (LogIndex(100), Term(3), 2));
    let read = wal.reader().read(LogIndex(101), LogIndex(120), usize::MAX).unwrap();
    assert_eq!(read, (101..=120).map(expected).collect::<Vec<_>>());
    let config = Config::new(ReplicaId(1), [1, 2, 3].map(ReplicaId).to_vec());
    let reader = Some(Box::new(wal.reader()) as _);
    let members = Consensus::new(config, recovered, reader).unwrap().members();
    let told: Vec<_> =
        members.iter().map(|m| (m.id.0, m.place.address.as_str(), m.place.kind)).collect();
    assert_eq!(told, [(1, "b", Kind::Active), (2, "c", Kind::Active), (3, "d", Kind::Active)]);
    let later = Base { index: LogIndex(119), term: Term(6), ..base };
    let forget = NewBase::Forget(Box::new(later.clone()));
    wal.append(&Persist { base: Some(forget), ..persist(None, vec![]) }).unwrap();
    wal.prepare().unwrap();
    drop(wal);
    assert_eq!(versions(root.path()).pop(), Some(6));
    let recovered = Wal::open(disk, options()).unwrap().recovered;
    assert_eq!((recovered.base(), recovered.last_index()), (&later, LogIndex(120)));
}

/// A base of entry 100 and of three members with places and kinds, as versions before agreed levels write it; with a level, as those since.
fn base_of_kinds(index: u64, level: Option<u8>) -> Base {
    let mut bytes = [index, 3].map(u64::to_le_bytes).concat();
    bytes.push(if level.is_some() { 14 } else { 6 });
    bytes.extend_from_slice(&[3, 0]);
    (1..=3_u64).for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
    bytes.extend_from_slice(&[0; 6]);
    bytes.extend(level.into_iter().flat_map(|level| [level, 0]));
    bytes.push(3);
    for (id, kind) in [(1, 0), (2, 1), (3, 2)] {
        bytes.extend_from_slice(&[id, 0, 0, 0, kind, 1, b'a' + id]);
    }
    let base = Base::from_bytes(&bytes).expect("a base");
    assert_eq!(base.to_bytes(), bytes, "other versions read these");
    base
}

/// A copy of a stored log of 20 entries behind this base, which is read; `SKEIN_BLESS` writes it.
fn log_behind(name: &str, base: Base) -> tempfile::TempDir {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("SKEIN_BLESS").is_some() {
        let disk = Arc::new(DirDisk::open(&stored).unwrap());
        fill(&mut Wal::create_after(disk, options(), base.clone()).unwrap().wal).unwrap();
        fs::remove_file(stored.join("lock")).unwrap();
    }
    let root = stored_log(name);
    let disk = Arc::new(DirDisk::open(root.path()).unwrap());
    let Opened { wal, recovered, .. } = Wal::open(disk, options()).unwrap();
    assert_eq!((recovered.base(), recovered.last_index()), (&base, LogIndex(120)));
    let read = wal.reader().read(LogIndex(101), LogIndex(120), usize::MAX).unwrap();
    assert_eq!(read, (101..=120).map(expected).collect::<Vec<_>>());
    root
}

#[test]
fn a_log_of_the_format_whose_members_have_agreed_on_no_level_is_read_and_goes_on_in_the_next() {
    let root = log_behind("format6", base_of_kinds(100, None));
    let newest = |root: &Path| versions(root).pop();
    assert_eq!(newest(root.path()), Some(6));
    let disk = Arc::new(DirDisk::open(root.path()).unwrap());
    let Opened { mut wal, recovered, .. } = Wal::open(disk.clone(), options()).unwrap();
    // What such members agree on is in a segment that a version before refuses by its number.
    for (index, level, version) in [(110, None, 6), (119, Some(2), 7)] {
        let base = base_of_kinds(index, level);
        let base = Base { term: recovered.term(LogIndex(index)).unwrap(), ..base };
        let base = NewBase::Forget(Box::new(base));
        wal.append(&Persist { base: Some(base.clone()), ..persist(None, vec![]) }).unwrap();
        wal.prepare().unwrap();
        drop(wal);
        assert_eq!(newest(root.path()), Some(version));
        let opened = Wal::open(disk.clone(), options()).unwrap();
        assert_eq!(opened.recovered.base(), base.base());
        wal = opened.wal;
    }
}

#[test]
fn a_log_of_the_format_whose_members_have_agreed_on_a_level_is_read() {
    let root = log_behind("format7", base_of_kinds(100, Some(2)));
    assert!(versions(root.path()).iter().all(|version| *version == 7));
}

#[test]
fn a_log_of_the_format_without_a_base_is_read_and_goes_on_in_it() {
    let root = stored_log("format2");
    let looked = Wal::look(Arc::new(StoredDir::new(root.path())), options()).unwrap();
    assert_eq!(
        (looked.first, looked.last, looked.commit),
        (LogIndex(1), LogIndex(22), LogIndex(18))
    );
    let disk = Arc::new(DirDisk::open(root.path()).unwrap());
    let mut opened = Wal::open(disk.clone(), options()).unwrap();
    let state = State::of(&opened);
    let whole = (1..=18).map(|n| entry(n, 1, 60)).chain((19..=22).map(|n| entry(n, 4, 30)));
    assert_eq!(state.entries, whole.collect::<Vec<_>>());
    assert_eq!((state.hard_state.term, state.hard_state.vote), (Term(4), 1));
    assert!(opened.recovered.base().is_start());
    // A program from before can read what is added.
    let more = (23..=60).map(|n| entry(n, 4, 60)).collect();
    opened.wal.append(&persist(None, more)).unwrap();
    opened.wal.sync().unwrap();
    assert!(versions(root.path()).iter().all(|version| *version == 2));
}

#[test]
fn the_members_are_those_of_the_base() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    cluster.at(1).consensus.campaign_now();
    cluster.settle();
    // Replica 3 comes back without its log, as another member.
    cluster.kill(3, true);
    cluster.restart(3);
    for id in 1..=2 {
        cluster.at(id).consensus.request_rejoin(ReplicaId(3), 1);
    }
    cluster.settle();
    cluster.tick_until("the members are whole", |c| c.at(1).consensus.status().is_whole());
    let base = cluster.at(1).consensus.base();
    assert!(!base.members.is_founders());
    let disk = SimDisk::new();
    drop(Wal::create_after(Arc::new(disk.clone()), options(), base.clone()).unwrap());
    let stored = reopen(&disk).unwrap().recovered;
    assert_eq!(stored.base(), &base);
    let role = |id, incarnation, recovered: &Recovered| {
        let config = Config::new(ReplicaId(id), (1..=3).map(ReplicaId).collect());
        let config = Config { durability: Durability::Memory, incarnation, ..config };
        Consensus::new(config, recovered.clone(), None).unwrap().role()
    };
    assert_eq!(role(3, 1, &stored), Role::Follower);
    assert_eq!(role(3, 0, &stored), Role::Learner, "its former self has no vote");
    assert_eq!(role(3, 1, &Recovered::default()), Role::Learner);
}

#[test]
fn a_read_below_the_base_and_a_member_below_it_are_refused_by_name() {
    let mut cluster = Cluster::after(base(), 3, |config| config.recent_bytes = 0);
    let leader = cluster.elect();
    (0..5).for_each(|n| cluster.propose(leader, &format!("entry {n}")));
    let consensus = &cluster.at(leader).consensus;
    assert_eq!(
        (consensus.first_index(), consensus.status().first_index),
        (LogIndex(101), LogIndex(101))
    );
    let refused = consensus.entries(LogIndex(1), 1000).unwrap_err();
    assert!(
        refused.to_string().contains("begins at entry 101: entry 1 is no longer in it"),
        "{refused}"
    );
    let all = consensus.entries(LogIndex(101), 10_000).unwrap();
    assert_eq!((all.entries.len(), all.next), (5, LogIndex(107)));
    let lost = 1 + leader % 3;
    cluster.kill(lost, true);
    cluster.replace_disk(lost);
    cluster.base = None;
    cluster.restart(lost);
    cluster.at(leader).consensus.request_rejoin(ReplicaId(lost), 1);
    cluster.tick_until("a refusal", |c| !c.at(lost).refused.is_empty());
    let refused = cluster.at(lost).refused[0];
    let (first, last) = (LogIndex(101), LogIndex(0));
    assert_eq!(refused, StepError::BelowBase { from: ReplicaId(leader), first, last });
    cluster.tick();
    assert_eq!(cluster.at(lost).consensus.last_index(), LogIndex(0));
    // The others do not mind.
    cluster.propose(leader, "more");
    assert_eq!(cluster.at(leader).executed.last().unwrap().2, "more");
}
