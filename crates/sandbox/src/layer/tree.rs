//! A layer's files outside of a server: those of a packed layer are written to a directory, and a directory is packed for a layer.
//!
//! In both the directory stands for the server's root: `DIR/var/lib/x` is the server's `/var/lib/x`. Times of last access do not pass: in a server the
//! runtime has its marks there.

use std::fs::{self, File};
use std::io::{self, Error, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::stream::{Attributes, Entry, Kind, Packer, Packs};
use super::{pack, unpack};

/// How much was written or packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files, without directories.
    pub files: u64,
    /// Bytes in files, with the holes in them.
    pub bytes: u64,
}

/// Writes the files of a packed layer below `to`, a directory that nobody else uses; with `wanted`, only these paths of the server and what is below them. What the server
/// has removed of its host's files has no place there, and is left out.
///
/// # Errors
/// The stream is damaged, a file cannot be made, or one of the wanted paths is not in it.
pub fn export(from: &mut dyn Read, to: &Path, wanted: &[PathBuf]) -> io::Result<Amount> {
    let root = File::open(to)?;
    let mut found = vec![false; wanted.len()];
    let mut amount = Amount::default();
    let wanted: Vec<&[u8]> = wanted.iter().map(|path| below_root(path)).collect();
    let mut choose = |entry: &mut Entry| {
        if entry.kind == Kind::Removed {
            return Ok(false);
        }
        let mut is_chosen = wanted.is_empty();
        for (wanted, found) in wanted.iter().zip(&mut found) {
            let inside = is_below(&entry.path, wanted);
            *found |= inside;
            is_chosen |= inside || entry.kind == Kind::Directory && is_below(wanted, &entry.path);
        }
        if !is_chosen {
            return Ok(false);
        }
        let target_is_chosen =
            wanted.is_empty() || wanted.iter().any(|wanted| is_below(&entry.target, wanted));
        if entry.kind == Kind::Same && !target_is_chosen {
            let names = [&entry.path, &entry.target].map(|path| String::from_utf8_lossy(path));
            let [path, target] = names;
            return Err(Error::other(format!("/{path} is one more name of /{target}: name both")));
        }
        entry.attributes.accessed = entry.attributes.modified;
        amount.files += u64::from(entry.kind != Kind::Directory);
        Ok(true)
    };
    let made = unpack::chosen(root.as_fd(), from, &mut choose)?;
    as_on_the_host(to, made)?;
    if let Some(missing) = found.iter().position(|found| !found) {
        let path = String::from_utf8_lossy(wanted[missing]);
        return Err(Error::new(
            io::ErrorKind::NotFound,
            format!("the server has written nothing at /{path}"),
        ));
    }
    amount.bytes = bytes_below(to)?;
    Ok(amount)
}

/// Directories on the way to what the server has written, which it has not changed: they get the host's modes and times. The last ones come first.
fn as_on_the_host(to: &Path, mut made: Vec<Vec<u8>>) -> io::Result<()> {
    made.sort();
    for path in made.into_iter().rev() {
        let path = std::ffi::OsStr::from_bytes(&path);
        let (Ok(meta), place) = (fs::metadata(Path::new("/").join(path)), to.join(path)) else {
            continue;
        };
        File::open(&place)?.set_modified(meta.modified()?)?;
        fs::set_permissions(&place, meta.permissions())?;
    }
    Ok(())
}

/// Writes a packed layer as it comes.
struct Plain<'a>(&'a mut dyn Write);

impl Packs for Plain<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// Packs the files below `dir` for a server's layer ([`super::Layer::unpack`]). Of an ordinary user all files become that user's.
///
/// # Errors
/// They cannot be read, one is a device, or `out` cannot be written to.
pub fn pack_tree(dir: &Path, out: &mut dyn Write) -> io::Result<Amount> {
    let mut plain = Plain(out);
    let mut packer = Packer::new(&mut plain)?;
    let shape: fn(&mut Attributes) = if geteuid().is_root() { without_access } else { own };
    let mut walk = pack::Walk::shaped(&mut packer, shape);
    let mut amount = Amount::default();
    walk.below(dir, Path::new("/"), &mut |_, about| {
        amount.files += u64::from(!about.is_dir());
        amount.bytes += if about.is_file() { about.size } else { 0 };
        true
    })?;
    packer.finish()?;
    Ok(amount)
}

/// The directories below `dir`, by their paths in a server, that the user owns inside of others' on this host: an ordinary user's server must be told that it is to
/// write there ([`super::super::LaunchSpec::writable`]).
///
/// # Errors
/// The stream is damaged.
pub fn own_directories(from: &mut dyn Read) -> io::Result<Vec<PathBuf>> {
    let user = geteuid().as_raw();
    let is_own = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.uid() == user);
    let mut own = Vec::new();
    unpack::look(from, &mut |entry| {
        let path = Path::new("/").join(std::ffi::OsStr::from_bytes(&entry.path));
        let is_first = path.parent().is_some_and(|parent| !is_own(parent));
        if entry.kind == Kind::Directory && is_first && is_own(&path) {
            own.push(path);
        }
    })?;
    Ok(own)
}

fn without_access(attributes: &mut Attributes) {
    attributes.accessed = attributes.modified;
}

fn own(attributes: &mut Attributes) {
    without_access(attributes);
    (attributes.user, attributes.group) = (0, 0);
}

/// A path as entries have it.
fn below_root(path: &Path) -> &[u8] {
    path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes()
}

/// Whether `path` is `above`, or lies below it.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn bytes_below(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    super::walk(dir, Path::new("/"), &mut |_, _, meta| {
        bytes += if meta.is_file() { meta.len() } else { 0 };
        Ok(())
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directories_that_lead_to_files_are_made_as_they_are_on_the_host() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir(host.path().join("closed")).unwrap();
        fs::set_permissions(host.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        let path = host.path().join("closed/new/file");
        let mut stream = Vec::new();
        let mut packer = Packer::new(&mut stream).unwrap();
        let attributes = Attributes { mode: 0o640, ..Attributes::default() };
        let (kind, path) = (Kind::File, below_root(&path).to_vec());
        packer.entry(&Entry { kind, opaque: false, path, target: Vec::new(), attributes }).unwrap();
        // A file of two bytes, and its end.
        [2, 0, 2].into_iter().for_each(|number| packer.number(number).unwrap());
        packer.bytes(b"ab").unwrap();
        [2, 0].into_iter().for_each(|number| packer.number(number).unwrap());
        packer.finish().unwrap();
        let to = tempfile::tempdir().unwrap();
        let amount = export(&mut &stream[..], to.path(), &[]).unwrap();
        assert_eq!(amount, Amount { files: 1, bytes: 2 });
        let inside = to.path().join(host.path().strip_prefix("/").unwrap());
        let mode = |name: &str| fs::metadata(inside.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("closed"), mode("closed/new/file")), (0o700, 0o640));
        assert_eq!(fs::read(inside.join("closed/new/file")).unwrap(), b"ab");
    }
}
