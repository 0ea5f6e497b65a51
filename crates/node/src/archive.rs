//! A cluster in one file: what `skein checkpoint export` writes, and `--import FILE` begins with. It needs nothing of a host but Skein.
//!
//! A tar archive, in this order:
//!
//! ```text
//! edition               as in a data directory, if the server was upgraded
//! base/index            what the server has used of its host, and base/index-DIGEST of its later editions; the runtime is in there
//! base/objects/DIGEST   their contents
//! import                the packed files that the cluster began with, if it did
//! image                 the image of the server, whole
//! ```
//!
//! What is taken is compared with its checksums before anything is begun with it. A file that is an image alone, from an earlier version, wants these files of the host.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use skein_image::file::Head;
use skein_log::disk::durable;
use skein_sandbox::Program;
use tar::{Archive, Builder, EntryType, Header};

use crate::base::edition;
use crate::base::index::{self, Command, Contents, Index, Kept};
use crate::base::store::Digest;
use crate::base::{self, Base};
use crate::error::NodeError;
use crate::images::adopt::{self, Adopted};
use crate::import;

const PART: &str = "part";
const IMAGE: &str = "image";
/// `ustar` in a tar's first header.
const MAGIC_AT: u64 = 257;
const MAGIC: &[u8] = b"ustar";
/// So often an export is begun.
const TRIES: u32 = 3;
/// A longer index is not taken: 64 MiB.
const INDEX_BYTES_MAX: u64 = 64 << 20;

fn failed(path: &Path) -> impl Fn(io::Error) -> NodeError {
    let path = path.to_owned();
    move |error| NodeError::Archive { path: path.clone(), error }
}

fn too_early() -> io::Error {
    damaged("it ends too early, or is damaged: copy it again, or export again")
}

fn damaged(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Writes an image of a data directory into a new file, with what its server has used of its host. The file has its name when it is whole and durable. Answers its length.
///
/// # Errors
/// The image is damaged, there is such a file already, or it cannot be written.
pub fn export(image: &Path, data_dir: &Path, to: &Path) -> Result<u64, NodeError> {
    if to.exists() {
        return Err(failed(to)(io::ErrorKind::AlreadyExists.into()));
    }
    let with = |end: &str| {
        let mut name = to.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    // By these names they are ours: a run that was killed has left them.
    let (whole, part) = (with(".part.image"), with(".part"));
    let _ = fs::remove_file(&whole);
    let written = (|| {
        crate::images::export(image, &whole)?;
        let edition = edition_of(&whole)?;
        let written = write_patiently(&whole, edition, data_dir, &part);
        let bytes = written.map_err(failed(&part))?;
        durable::rename(&part, to).map_err(failed(to))?;
        Ok(bytes)
    })();
    // What is not there any more, or was never made, cannot be removed; the error from before is the one that matters.
    let _ = fs::remove_file(&whole);
    let _ = fs::remove_file(&part);
    written
}

/// A node that runs may remove what no edition needs any more, between a look at the indexes and one at the contents.
fn write_patiently(
    image: &Path,
    edition: Option<Digest>,
    data_dir: &Path,
    part: &Path,
) -> io::Result<u64> {
    let mut tries = 1;
    loop {
        match write(image, edition, data_dir, part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            written => return written,
        }
    }
}

/// The base of the edition that an image is of; `None`: the founders'.
fn edition_of(image: &Path) -> Result<Option<Digest>, NodeError> {
    let adopted = Adopted::read(image, Head::read(image)?.owner.program)?;
    match adopted.about() {
        "" => Ok(None),
        about => Ok(Some(edition::Spec::decode(about)?.base)),
    }
}

fn write(image: &Path, edition: Option<Digest>, data_dir: &Path, part: &Path) -> io::Result<u64> {
    let editions = editions(data_dir)?;
    let wanted = edition.map(|base| format!("{}-{base}", index::PATH));
    if let Some(wanted) = wanted
        && !editions.iter().any(|name| *name == Path::new(&wanted))
    {
        let why = "the files of this image's edition of the server are not kept any more; export a newer image";
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(part)?;
    let mut tar = Builder::new(file);
    for name in [edition::FILE, index::PATH].map(PathBuf::from).into_iter().chain(editions) {
        let path = data_dir.join(&name);
        if path.exists() {
            append(&mut tar, &name, &path)?;
        }
    }
    for digest in whole_contents(data_dir)? {
        let name = Path::new(base::NAME).join("objects").join(digest.to_string());
        append(&mut tar, &name, &data_dir.join(&name))?;
    }
    let packed = data_dir.join(import::FILE);
    if packed.exists() {
        append(&mut tar, Path::new(import::FILE), &packed)?;
    }
    append(&mut tar, Path::new(IMAGE), image)?;
    let mut file = tar.into_inner()?;
    file.flush()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

/// The indexes of later editions, by their paths in a data directory.
fn editions(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let base = Base::open(data_dir).map_err(io::Error::other)?;
    let mut names = base.names()?;
    names.retain(|name| name != index::FILE);
    names.sort();
    Ok(names.into_iter().map(|name| Path::new(base::NAME).join(name)).collect())
}

/// All contents that any index names; they are as they were when they were pinned.
fn whole_contents(data_dir: &Path) -> io::Result<BTreeSet<Digest>> {
    let dir = data_dir.join(base::NAME);
    let base = Base::open(data_dir).map_err(io::Error::other)?;
    let mut all = BTreeSet::new();
    for name in base.names()? {
        for &Contents { path, digest, size, sum } in &Index::read(&dir, &name)?.kept_once() {
            if all.insert(digest) && !base.objects().is_whole(digest, size, sum) {
                // Gone it may be, with its edition: then it is looked for again.
                base.objects().open(digest)?;
                return Err(damaged(format!(
                    "the contents of {} that this replica keeps are damaged (object {digest}): export from another one with '--replica N'",
                    path.display()
                )));
            }
        }
    }
    Ok(all)
}

fn append(tar: &mut Builder<File>, name: &Path, path: &Path) -> io::Result<()> {
    // Reading leaves no time of access, in which servers' files have something else.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NOATIME | libc::O_NOFOLLOW);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = options.open(path).map_err(named)?;
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(file.metadata()?.len());
    header.set_mode(0o600);
    header.set_cksum();
    tar.append_data(&mut header, name, file)
}

/// Whether a file is such an archive, whole or not.
fn is_archive(file: &Path) -> io::Result<bool> {
    let mut file = File::open(file)?;
    let mut magic = [0; MAGIC.len()];
    file.seek(SeekFrom::Start(MAGIC_AT))?;
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| magic == MAGIC),
    }
}

/// Takes what was exported into a data directory, durably: the log that is begun there begins behind it.
///
/// # Errors
/// It was not exported, is damaged, cannot be read, or there is no room for it.
pub fn take(file: &Path, data_dir: &Path) -> Result<(), NodeError> {
    durable::create_dir(data_dir).map_err(failed(data_dir))?;
    // What was begun before is not gone on with.
    Base::forget(data_dir)?;
    let image = data_dir.join(import::IMAGE);
    let part = image.with_extension(PART);
    if !is_archive(file).map_err(failed(file))? {
        adopt::check(file)?;
        return copy_image(file, &part, &image).map_err(failed(file));
    }
    let taken = unpack(file, data_dir, &part).map_err(failed(file)).and_then(|()| {
        check(file, data_dir, &part)?;
        durable::rename(&part, &image).map_err(failed(file))
    });
    if taken.is_err() {
        // The error of the taking is the one that matters.
        let _ = fs::remove_file(&part);
        let _ = Base::forget(data_dir);
        let _ = fs::remove_file(data_dir.join(import::FILE));
    }
    taken
}

fn copy_image(file: &Path, part: &Path, image: &Path) -> io::Result<()> {
    let copied = keep(&mut File::open(file)?, part).and_then(|_| durable::rename(part, image));
    if copied.is_err() {
        // The error of the copy is the one that matters.
        let _ = fs::remove_file(part);
    }
    copied
}

/// Writes a file, durably but for its name; answers its length.
fn keep(from: &mut impl Read, to: &Path) -> io::Result<u64> {
    let mut new = OpenOptions::new();
    let mut out = new.write(true).create(true).truncate(true).mode(0o600).open(to)?;
    let bytes = io::copy(from, &mut out)?;
    out.sync_all()?;
    Ok(bytes)
}

/// Where an entry belongs; none for what no export writes: nothing leads out of the data directory.
fn place(name: &Path, data_dir: &Path, image: &Path) -> Option<PathBuf> {
    let text = name.to_str()?;
    let is_digest = |text: &str| text.parse::<Digest>().is_ok();
    let is_known = text == edition::FILE
        || text == import::FILE
        || text == index::PATH
        || text.strip_prefix("base/index-").is_some_and(is_digest)
        || text.strip_prefix("base/objects/").is_some_and(is_digest);
    match text {
        IMAGE => Some(image.to_owned()),
        _ => is_known.then(|| data_dir.join(name)),
    }
}

fn unpack(file: &Path, data_dir: &Path, image: &Path) -> io::Result<()> {
    let dir = data_dir.join(base::NAME);
    durable::create_dir(&dir)?;
    durable::create_dir(&dir.join("objects"))?;
    let mut archive = Archive::new(File::open(file)?);
    let mut has_image = false;
    for entry in archive.entries()? {
        let mut entry = entry.map_err(|_| too_early())?;
        let name = entry.path()?.into_owned();
        let to = place(&name, data_dir, image).filter(|_| entry.header().entry_type().is_file());
        let to = to.ok_or_else(|| {
            damaged(format!("it has '{}', which no export of Skein has", name.display()))
        })?;
        if keep(&mut entry, &to)? != entry.size() {
            return Err(too_early());
        }
        has_image |= to == image;
    }
    if !has_image {
        return Err(too_early());
    }
    for dir in [&dir.join("objects"), &dir, data_dir] {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// What was unpacked is what was exported.
fn check(file: &Path, data_dir: &Path, image: &Path) -> Result<(), NodeError> {
    adopt::check(image)?;
    edition::Commands::read(data_dir)?;
    let base = Base::open(data_dir)?;
    for name in base.names().map_err(failed(file))? {
        for (path, kept) in &base.with_index(&name)?.index().files {
            let Kept::File { digest, size, sum, .. } = kept else { continue };
            if !base.objects().is_whole(*digest, *size, *sum) {
                let path = path.display();
                let why = format!(
                    "it is damaged: the contents of {path} are others: copy it again, or export again"
                );
                return Err(failed(file)(damaged(why)));
            }
        }
    }
    Ok(())
}

/// The program that an exported server runs, if this command was given for it.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn program(file: &Path, command: &Command) -> Result<Option<Program>, NodeError> {
    let find = || -> io::Result<Option<Program>> {
        if !is_archive(file)? {
            return Ok(None);
        }
        let mut archive = Archive::new(File::open(file)?);
        for entry in archive.entries()? {
            let mut entry = entry.map_err(|_| too_early())?;
            let name = entry.path()?.into_owned();
            if !name.to_str().is_some_and(|name| name.starts_with(index::PATH)) {
                if name.starts_with(base::NAME) || name == Path::new(edition::FILE) {
                    continue;
                }
                break;
            }
            let mut bytes = Vec::new();
            entry.by_ref().take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?;
            let known = Index::decode(&bytes)?.program;
            if let Some(known) = known.filter(|known| known.command == *command) {
                return Ok(Some(known.program));
            }
        }
        Ok(None)
    };
    find().map_err(failed(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::store::{Added, Sum};
    use skein_sandbox::About;

    #[test]
    fn nothing_leads_out_of_the_data_directory() {
        let (dir, image) = (Path::new("/data"), Path::new("/data/import.part"));
        let digest = "ab".repeat(32);
        let known = [
            "edition".to_owned(),
            "import".to_owned(),
            "base/index".to_owned(),
            format!("base/index-{digest}"),
            format!("base/objects/{digest}"),
        ];
        for name in &known {
            assert_eq!(place(Path::new(name), dir, image), Some(dir.join(name)));
        }
        assert_eq!(place(Path::new("image"), dir, image), Some(image.to_owned()));
        let unknown = [
            "../edition".to_owned(),
            "/edition".to_owned(),
            "log/0000000000000001.wal".to_owned(),
            "base/objects/../../x".to_owned(),
            format!("base/objects/{digest}0"),
            format!("base/objects/x/{digest}"),
            "base/index-".to_owned(),
            String::new(),
        ];
        for name in &unknown {
            assert_eq!(place(Path::new(name), dir, image), None, "{name}");
        }
    }

    #[test]
    fn an_image_whose_edition_is_gone_is_not_exported() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("image"), "image").unwrap();
        let edition = Digest([0xab; 32]);
        let written = || write(&path("image"), Some(edition), &path("data"), &path("part"));
        assert_eq!(written().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir_all(path("data/base")).unwrap();
        let index = format!("data/base/index-{}", "ab".repeat(32));
        fs::write(path(&index), Index::default().encode()).unwrap();
        written().unwrap();
    }

    #[test]
    fn contents_that_are_not_what_was_pinned_are_not_exported() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("data/base/objects")).unwrap();
        for name in ["image", "pinned"] {
            fs::write(path(name), "text").unwrap();
        }
        let base = Base::open(&path("data")).unwrap();
        let Added { digest, size, hash } = base.objects().add(&path("pinned")).unwrap();
        let about = About { mode: 0o644, user: 0, group: 0, rights: 4, modified: (1, 0) };
        let sum = Sum::of(hash);
        let kept = Kept::File { about, size, digest, sum, same_as: None, number: None };
        let files = [("/pinned".into(), kept)].into();
        let index = Index { files, ..Index::default() };
        fs::write(path("data/base/index"), index.encode()).unwrap();
        let written = || write(&path("image"), None, &path("data"), &path("part"));
        written().unwrap();
        let object = base.objects().path(digest);
        fs::remove_file(&object).unwrap();
        assert_eq!(written().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&object, "tex!").unwrap();
        let said = written().unwrap_err().to_string();
        assert!(said.contains("the contents of /pinned") && said.contains("damaged"), "{said}");
    }

    #[test]
    fn an_archive_that_ends_early_or_has_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let tar_with = |name: &str| {
            let mut tar = Builder::new(Vec::new());
            let text = vec![b'x'; 3000];
            let mut header = Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_cksum();
            tar.append_data(&mut header, name, &text[..]).unwrap();
            tar.into_inner().unwrap()
        };
        let taken = |bytes: &[u8]| {
            fs::write(path("file"), bytes).unwrap();
            let said = take(&path("file"), &path("data")).unwrap_err().to_string();
            assert!(!path("data/import.image").exists() && !path("data/import.part").exists());
            assert!(!path("data/import").exists() && !path("data/base").exists(), "{said}");
            said
        };
        let whole = tar_with("import");
        for end in [512, 700, 3000, 3600] {
            let said = taken(&whole[..end]);
            assert!(said.contains("it ends too early"), "{end}: {said}");
        }
        assert!(taken(&whole).contains("it ends too early"));
        assert!(taken(&tar_with("other")).contains("'other', which no export"));
        assert!(taken(&tar_with("image")).contains("no image of a server"));
        assert!(taken(&[b'x'; 9000]).contains("no image of a server"));
    }
}
