//! What leaves an image's directory: a copy of the image, or the server's files in it.

use skein_image::file::{Head, ImageError, Opened};
use skein_log::disk::durable;
use skein_sandbox::Amount;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Copies an image into a new file, which has its name when it is whole and durable. Answers its length.
///
/// # Errors
/// The image is damaged, there is such a file already, or it cannot be written.
pub fn export(image: &Path, to: &Path) -> Result<u64, ImageError> {
    if to.exists() {
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(ImageError::io(to)(error));
    }
    let mut name = to.as_os_str().to_owned();
    name.push(".part");
    let part = Path::new(&name);
    let copied = copy(image, part).and_then(|bytes| {
        durable::rename(part, to).map_err(ImageError::io(to))?;
        Ok(bytes)
    });
    if copied.is_err() {
        // The error of the copy is the one that matters.
        let _ = fs::remove_file(part);
    }
    copied
}

fn copy(image: &Path, part: &Path) -> Result<u64, ImageError> {
    let failed = ImageError::io(part);
    let owner = Head::read(image)?.owner;
    let verified = Opened::open(image, &owner)?.verify()?;
    let mut new = OpenOptions::new();
    let out = new.write(true).create(true).truncate(true).mode(0o600).open(part);
    let mut out = out.map_err(&failed)?;
    verified.write_whole(&owner, &mut out, part)?;
    out.sync_all().map_err(&failed)?;
    Ok(Opened::open(part, &owner)?.verify()?.seal.bytes)
}

/// Writes the server's files in an image below `to`, an empty directory, durably; with `wanted`, only these paths of the server and what is below them.
///
/// # Errors
/// The image is damaged, a file cannot be written, or one of the wanted paths is not in it.
pub fn export_files(image: &Path, to: &Path, wanted: &[PathBuf]) -> Result<Amount, ImageError> {
    let owner = Head::read(image)?.owner;
    let (_, mut body) = Opened::open(image, &owner)?.verify()?.unpack()?;
    body.memory(&mut io::sink())?;
    let failed = ImageError::io(to);
    let amount = body.layer(|from| skein_sandbox::export(from, to, wanted))?.map_err(&failed)?;
    File::open(to).and_then(|dir| Ok(nix::unistd::syncfs(&dir)?)).map_err(&failed)?;
    Ok(amount)
}
