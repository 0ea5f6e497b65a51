//! A server's files are packed, and unpacked for another one that was just launched; as root and as an ordinary user.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skein_sandbox::{Content, Packs, ServerProcess, Shown};
use support::*;

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

/// A server that has run `script` in `cwd` and stands.
fn stands_after(cwd: &Path, script: &str) -> ServerProcess {
    let script = format!("{script}\necho done; exec sleep 1000");
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", &script]);
    setup.cwd = cwd.to_owned();
    let server = setup.start();
    wait_until("the script is done", || {
        fs::read_to_string(setup.out()).unwrap().ends_with("done\n")
    });
    server
}

fn packed(server: &ServerProcess) -> Vec<u8> {
    let mut bytes = Vec::new();
    server.layer().unwrap().pack(&mut bytes).unwrap();
    bytes
}

/// All that can be seen below the server's directory of that name, by names, attributes and contents.
fn seen(server: &ServerProcess, directories: &[&Path]) -> String {
    let layer = server.layer().unwrap();
    let root = format!("/proc/{}/fd/{}", std::process::id(), layer.root().unwrap().as_raw_fd());
    let mut text = String::new();
    for directory in directories {
        let place = Path::new(&root).join(directory.strip_prefix("/").unwrap());
        let script = "find . -printf '%p %y %#m %U:%G %s %n %A@ %T@ %l\\n' | sort | grep -v '^. d'; \
            find . -type f | sort | xargs -r cat 2>&1; getfattr -R -d -m - . 2>/dev/null; du -s .";
        let run = std::process::Command::new("sh").args(["-c", script]).current_dir(place).output();
        text += &String::from_utf8(run.unwrap().stdout).unwrap();
    }
    text
}

const CHANGES: &str = r#"
echo changed >> old/file
touch -a -d @1099511627790.5 old/file
rm old/gone
rm -r old/tree; mkdir old/tree; echo new > old/tree/new
rm -r old/other
mv old/moved old/to
echo one > made; ln made again; ln -s nowhere link
mkfifo -m 640 fifo
mkdir -m 555 closed && chmod 755 closed && echo in > closed/in && chmod 555 closed
truncate -s 40M sparse; printf end | dd of=sparse bs=1 seek=30000000 conv=notrunc 2>/dev/null
chmod 2751 made
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
python3 -c "import os
try: os.setxattr('made', 'user.note', b'kept')
except OSError: pass"
echo shared > /dev/shm/segment
mkdir -p /tmp/deep/er; echo low > /tmp/deep/er/file
touch -d @1000000000 /tmp/deep/er
echo secret > shut; chmod 0 shut
mkdir -p sealed/deep; echo in > sealed/deep/in; ln sealed/deep/in seen; chmod 0 sealed/deep sealed
"#;

fn host_files() -> tempfile::TempDir {
    let dir = workspace();
    for name in ["old/tree/deep", "old/other/x", "old/kept"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    for name in ["old/file", "old/gone", "old/moved", "old/tree/a", "old/tree/deep/b", "old/kept/c"]
    {
        fs::write(dir.path().join(name), "host's\n").unwrap();
    }
    dir
}

#[test]
fn another_server_gets_the_same_files() {
    let dir = host_files();
    let first = stands_after(dir.path(), CHANGES);
    let stream = packed(&first);
    // Packing does not change anything.
    assert!(packed(&first) == stream, "packed again it is another stream");
    assert!(stream.len() < 4 << 20, "holes are not packed: {} bytes", stream.len());
    let second = stands_after(dir.path(), "");
    second.layer().unwrap().unpack(&mut &stream[..]).unwrap();
    let places = [dir.path(), Path::new("/dev/shm"), Path::new("/tmp/deep")];
    let (left, right) = (seen(&first, &places), seen(&second, &places));
    assert!(left.contains("changed") && left.contains("./made f 02751"), "{left}");
    assert!(!left.contains("tree/a") && left.contains("./old/kept/c"), "{left}");
    assert_eq!(left, right);
    let listed = |server: &ServerProcess| server.layer().unwrap().written(None).unwrap();
    let shown = |server| {
        let text = |file: &skein_sandbox::WrittenFile| {
            (file.path.clone(), file.kind.clone(), file.mode, file.size, file.digest.clone())
        };
        let all: Vec<_> = listed(server).files.iter().map(text).collect();
        all
    };
    assert_eq!(shown(&first), shown(&second));
    assert!(packed(&second) == stream, "packed by the second server it is another stream");
}

#[test]
fn a_damaged_stream_is_an_error() {
    let dir = host_files();
    let stream =
        packed(&stands_after(dir.path(), "echo x > old/file; mkdir a; ln -s b c; echo y > a/d"));
    let unpacked = |stream: &[u8]| {
        let server = stands_after(dir.path(), "");
        server.layer().unwrap().unpack(&mut &stream[..]).unwrap_err()
    };
    for len in [0, 7, 8, 20, stream.len() / 2, stream.len() - 1] {
        let error = unpacked(&stream[..len]);
        assert_eq!(error.kind(), ErrorKind::InvalidData, "cut at {len}: {error}");
    }
    // A text inside a file's content keeps the form.
    let at = stream.windows(2).rposition(|bytes| bytes == b"y\n").unwrap();
    let mut spoiled = stream.clone();
    spoiled[at] = b'z';
    assert!(unpacked(&spoiled).to_string().contains("their hash is another one"));
}

#[test]
fn a_stream_reaches_nothing_outside_the_servers_root() {
    let dir = host_files();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let script = "mkdir link; echo x > link/file";
    let mut stream = packed(&stands_after(dir.path(), script));
    // The directory of the next server is a link that leads elsewhere.
    let second = stands_after(dir.path(), &format!("ln -s {} link", outside.display()));
    second.layer().unwrap().unpack(&mut &stream[..]).unwrap();
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    let name = b"link/file";
    while let Some(at) = stream.windows(name.len()).position(|bytes| bytes == name) {
        stream[at..at + name.len()].copy_from_slice(b"../../abc");
    }
    let third = stands_after(dir.path(), "");
    let error = third.layer().unwrap().unpack(&mut &stream[..]).unwrap_err();
    assert!(error.to_string().contains("leads elsewhere"), "{error}");
}

#[test]
fn files_leave_a_layer_and_come_into_another() {
    let dir = host_files();
    let script = "mkdir new; echo text > new/a; ln new/a new/b; ln -s a new/c; chmod 640 new/a; rm old/file; \
                  truncate -s 1M new/hole; echo y >> old/kept/c; mkfifo new/fifo";
    let first = stands_after(dir.path(), script);
    let stream = packed(&first);
    let out = tempfile::tempdir().unwrap();
    let all = out.path().join("all");
    fs::create_dir(&all).unwrap();
    let amount = skein_sandbox::export(&mut &stream[..], &all, &[]).unwrap();
    let inside = |name: &str| all.join(dir.path().strip_prefix("/").unwrap()).join(name);
    assert!(amount.files >= 6, "{amount:?}");
    assert_eq!(fs::read_to_string(inside("new/b")).unwrap(), "text\n");
    assert_eq!(fs::metadata(inside("new/a")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(inside("new/a")).unwrap().nlink(), 2);
    assert!(!inside("old/file").exists(), "what was removed has no place");
    let mark = fs::metadata(inside("old/kept/c")).unwrap();
    assert_eq!(mark.atime(), mark.mtime(), "marks stay in the server");

    let (way, host) =
        (dir.path().parent().unwrap(), |path: &Path| fs::metadata(path).unwrap().mode());
    assert_eq!(
        host(&all.join(way.strip_prefix("/").unwrap())),
        host(way),
        "the way is as on the host"
    );

    // The same files in another server, but for what it removed.
    let mut tree = Vec::new();
    skein_sandbox::pack_tree(&all, &mut tree).unwrap();
    let second = stands_after(dir.path(), "");
    second.layer().unwrap().unpack(&mut &tree[..]).unwrap();
    let shown = |server: &ServerProcess| {
        let written = server.layer().unwrap().written(None).unwrap();
        let text = |file: &skein_sandbox::WrittenFile| {
            (file.path.clone(), file.kind.clone(), file.mode, file.size, file.digest.clone())
        };
        let kept = written.files.iter().filter(|file| file.kind != "deleted").map(text);
        kept.collect::<Vec<_>>()
    };
    assert_eq!(shown(&first), shown(&second));

    // Chosen ones.
    let chosen = |paths: &[&str]| {
        let to = tempfile::tempdir().unwrap();
        let paths: Vec<_> = paths.iter().map(|path| dir.path().join(path)).collect();
        skein_sandbox::export(&mut &stream[..], to.path(), &paths).map(|amount| amount.files)
    };
    assert_eq!(chosen(&["new/a"]).unwrap(), 1);
    assert_eq!(chosen(&["new/hole", "new/c"]).unwrap(), 2);
    assert_eq!(chosen(&["old"]).unwrap(), 1);
    let said = |paths: &[&str]| chosen(paths).unwrap_err().to_string();
    assert!(said(&["new/b"]).contains("one more name of"), "{}", said(&["new/b"]));
    assert!(said(&["new/a", "new/x"]).contains("written nothing at"), "a missing one");
    assert!(said(&["ne"]).contains("written nothing at"), "half a name");
}

/// A stream without contents, which tells what is shown of each file.
#[derive(Default)]
struct Followed(Vec<u8>);

impl Packs for Followed {
    fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn keeps_contents(&self) -> bool {
        true
    }

    fn follows(&self, shown: &Shown) -> Option<(u64, u64)> {
        Some((shown.id.1, 0))
    }

    fn contents(&mut self, content: &Content<'_>, start: u64, end: u64) -> std::io::Result<()> {
        let (shown, mut part) = (content.shown(), vec![0; (end - start) as usize]);
        content.file()?.read_exact_at(&mut part, start)?;
        self.bytes(&part)?;
        // Of files that are closed even to their owner, packing changes the time of change.
        self.bytes(format!("{:?} {:?} {:?}", content.id(), shown.id, shown.accessed).as_bytes())
    }
}

#[test]
fn a_layer_that_was_packed_is_packed_again_by_what_is_remembered() {
    let dir = host_files();
    let first = stands_after(dir.path(), CHANGES);
    let layer = first.layer().unwrap();
    let pack = || {
        let mut stream = Followed::default();
        let paths = layer.pack(&mut stream).unwrap();
        (stream.0, paths)
    };
    let root = || format!("/proc/self/fd/{}", layer.root().unwrap().as_raw_fd());
    let below_root = |path: &Path| Path::new(&root()).join(path.strip_prefix("/").unwrap());
    // What is said of files is what the server's mounts show.
    let known = |paths: Vec<(PathBuf, Option<Shown>)>| {
        let known = paths.into_iter().filter_map(|(path, shown)| shown.map(|shown| (path, shown)));
        let check = |(path, Shown { id, accessed, changed }): (PathBuf, Shown)| {
            let meta = fs::symlink_metadata(below_root(&path)).unwrap();
            assert_eq!((meta.dev(), meta.ino()), id, "{path:?}");
            assert_eq!((meta.atime(), meta.atime_nsec()), accessed, "{path:?}");
            assert_eq!((meta.ctime(), meta.ctime_nsec()), changed, "{path:?}");
            path
        };
        known.map(check).collect::<BTreeSet<_>>()
    };
    // Files have changed long enough ago.
    std::thread::sleep(Duration::from_millis(2_200));
    let at = |name: &str| dir.path().join(name);
    let (all, paths) = pack();
    let first = known(paths);
    assert!(first.contains(&at("sparse")) && first.contains(Path::new("/tmp/deep/er/file")));
    let (again, paths) = pack();
    assert!(again == all && known(paths) == first);
    fs::write(below_root(&at("sparse")), "no longer").unwrap();
    let (changed, paths) = pack();
    assert!(known(paths) == first);
    assert!(changed != all && changed.windows(9).any(|bytes| bytes == b"no longer"));
    // As it was packed by a server that knows nothing.
    let second = stands_after(dir.path(), "");
    let mut plain = Vec::new();
    layer.pack(&mut plain).unwrap();
    second.layer().unwrap().unpack(&mut &plain[..]).unwrap();
    assert!(packed(&second) == plain);
}
