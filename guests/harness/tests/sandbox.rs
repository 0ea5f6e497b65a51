//! Guests continue from images in the sandbox that servers run in, where their files are a layer over the host's; as root and as an ordinary user.

use skein_harness::images::Images;
use skein_harness::node::{ORDINARY, Role};
use skein_harness::restored::{self, Came};
use skein_harness::runner::{self, How};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An id that no file of the host belongs to.
const USER: &str = "65533";
/// The directory of the programs, for a test that runs as that user.
const PROGRAMS: &str = "SKEIN_TEST_PROGRAMS";

/// Servers of several processes, threads and clients; what they have open and know of files; and what only the kernel has of them.
const GUESTS: [&str; 24] = [
    "servers/store_workers",
    "servers/echo_threads",
    "process/fork_accept",
    "process/fork_threads",
    "process/fork_numbers",
    "process/fork_memory",
    "thread/thread_create_join",
    "thread/thread_raw_exit_last",
    "descriptor/fifo_processes",
    "unix/unix_stream",
    "file/file_many",
    "file/file_stat",
    "descriptor/fd_stdio_flags",
    "identity/id_told",
    "identity/memory_loader",
    "identity/memory_scattered",
    "file/file_locks",
    "file/file_mapping",
    "file/file_removed",
    "unix/unix_rights_waiting",
    "process/sysv_memory",
    "process/database",
    "process/rights_dropped",
    "process/exec_programs",
];

fn continue_all(images: &Images) {
    let words = GUESTS.map(str::to_owned);
    let went = restored::in_sandbox(images, 4, &words).expect("they run");
    let went = went.expect("see the lines that begin with DIFFERS");
    // Two or three get too few entries.
    assert!(went.continued >= 18, "{went:?}");
}

#[test]
fn guests_continue_in_the_sandbox() {
    match std::env::var_os(PROGRAMS) {
        Some(place) => {
            let images = programs(Path::new(&place));
            continue_all(&images);
            what_is_closed_is_refused(&images, Path::new(&place));
        }
        None => continue_all(&Images::build().expect("they are built")),
    }
}

/// Each image of copies of its processes is, page for page, the one of a guest that stands; and the guest goes on as if there were none, with the same numbers for those that it forks.
#[test]
fn images_of_copies_are_what_whole_ones_are() {
    let images = Images::build().expect("they are built");
    let alike = restored::rows_of_forks(&images, 10, &GUESTS.map(str::to_owned));
    let rows = alike.expect("they run").expect("see the lines that begin with DIFFERS");
    assert!(rows.guests >= 18, "{rows:?}");
    assert!(rows.spared > 0, "no copy did without anything");
}

const USES_FILES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    char byte;
    int opened = open("opened", O_RDONLY), mapped = open("mapped", O_RDONLY);
    char *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, mapped, 0);
    if (read(opened, &byte, 1) != 1 || at == MAP_FAILED || close(mapped) != 0)
        return 1;
    sleep(1);
    if (read(opened, &byte, 1) != 1)
        return 1;
    printf("%c %.9s\n", byte, at);
    return 0;
}
"#;

#[test]
fn a_file_of_the_host_that_has_changed_ends_the_restore_by_name() {
    if std::env::var_os(PROGRAMS).is_some() {
        return;
    }
    let place = tempfile::Builder::new().prefix("skein-files").tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let write = |name: &str, text: &str| fs::write(path(name), text);
    write("uses.c", USES_FILES).unwrap();
    let built = Command::new("cc").arg(path("uses.c")).arg("-o").arg(path("uses")).status();
    assert!(built.unwrap().success());
    write("opened", "two").unwrap();
    write("mapped", "as it was").unwrap();
    let library = Images::build().expect("they are built").library;
    let (program, how) = (path("uses"), How { sandbox: Some(place.path()), ..How::default() });
    let role = Role::Leader(Default::default(), ORDINARY);
    let leader = runner::skein(&program, &[], &library, role, how).unwrap();
    assert_eq!(leader.stdout, b"w as it was\n", "{:?}", leader.account.end);
    let log = &leader.account.log;
    let came = |meanwhile: &dyn Fn() -> std::io::Result<()>| {
        restored::at(&program, &[], &library, log, &[log.len() as u64 - 1], how, meanwhile)
    };
    match came(&|| write("another", "x")).unwrap() {
        Came::Continued(onward) => assert_eq!(onward.run.stdout, b"w as it was\n"),
        other => panic!("{other:?}"),
    }
    let replace = || {
        write("new", "as it is")?;
        fs::rename(path("new"), path("mapped"))
    };
    let error = came(&replace).unwrap_err().to_string();
    assert!(error.contains("mapped: its contents have changed since"), "{error}");
    write("mapped", "as it was").unwrap();
    let error = came(&|| fs::remove_file(path("opened"))).unwrap_err().to_string();
    assert!(error.contains("step 10, open a file that was open: errno 2"), "{error}");
}

const CLOSES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    if (mkdir("/tmp/closed", 0700) != 0)
        return 1;
    if (argc > 1 ? chdir("/tmp/closed") : open("/tmp/closed/file", O_CREAT | O_RDWR, 0600) < 0)
        return 1;
    if (chmod("/tmp/closed", 0) != 0)
        return 1;
    for (int i = 0; i < 4; i++)
        sleep(1);
    return puts("closed") < 0;
}
"#;

/// The program that is made of [`CLOSES`], in this directory.
const CLOSER: &str = "closes";

/// An ordinary user's server may not open again what lies behind a directory that it has closed: no image is better than one from which none can continue.
fn what_is_closed_is_refused(images: &Images, place: &Path) {
    let directory = tempfile::Builder::new().prefix("skein-closed").tempdir().unwrap();
    let how = How { sandbox: Some(directory.path()), ..How::default() };
    let (program, library) = (place.join(CLOSER), &images.library);
    for (args, word) in [(vec![], "descriptor"), (vec!["its own".to_owned()], "directory")] {
        let role = Role::Leader(Default::default(), ORDINARY);
        let leader = runner::skein(&program, &args, library, role, how).unwrap();
        assert_eq!(leader.stdout, b"closed\n", "{:?}", leader.account.end);
        let log = &leader.account.log;
        let at = log.len() as u64 - 1;
        match restored::at(&program, &args, library, log, &[at], how, || Ok(())).unwrap() {
            Came::Refused(why) => {
                assert!(why.contains(word) && why.contains("it has closed"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn programs(place: &Path) -> Images {
    let library = place.join("libskein.so");
    Images { sources: place.join("sources"), guests: place.join("guests"), library }
}

/// Everyone may read and execute it there.
fn copy(from: &Path, to: PathBuf) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    // In a process of its own: a launch elsewhere could fork while this one had the file open for writing.
    let status = Command::new("cp").arg(from).arg(&to).status().unwrap();
    assert!(status.success(), "cp {}", to.display());
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn guests_continue_in_the_sandbox_of_an_ordinary_user() {
    // SAFETY: takes no pointers.
    if std::env::var_os(PROGRAMS).is_some() || unsafe { libc::geteuid() } != 0 {
        return;
    }
    let built = Images::build().expect("they are built");
    let place = tempfile::Builder::new().prefix("skein-guests").tempdir().unwrap();
    let path = place.path();
    for guest in GUESTS {
        let source = ["c", "cc"].map(|end| built.sources.join(format!("{guest}.{end}")));
        let source = source.iter().find(|source| source.exists()).unwrap();
        let name = source.strip_prefix(&built.sources).unwrap();
        copy(source, path.join("sources").join(name));
        copy(&built.guests.join(guest), path.join("guests").join(guest));
    }
    let source = path.join("closes.c");
    fs::write(&source, CLOSES).unwrap();
    let made = Command::new("cc").arg(&source).arg("-o").arg(path.join(CLOSER)).status();
    assert!(made.unwrap().success());
    copy(&built.library, path.join("libskein.so"));
    copy(&std::env::current_exe().unwrap(), path.join("tests"));
    for made in ["", "sources", "guests"] {
        let rights = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path.join(made), rights).unwrap();
    }
    let output = Command::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"])
        .arg(path.join("tests"))
        .args(["--exact", "guests_continue_in_the_sandbox", "--nocapture"])
        .env(PROGRAMS, path)
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}
