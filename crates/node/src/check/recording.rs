//! The log and the output of the first run, in files that have no name: gone with their process, however it ends.

use super::seen::Shared;
use crate::trace::file::nameless;
use skein_arena::layout::Header;
use skein_model::entry::MAX_ENTRY_BYTES;
use skein_model::frame::{FRAME_HEADER_BYTES, MAX_SEND_BYTES};
use skein_model::{LogIndex, OutFrame, pad8};
use skein_replica::server::tap::Tap;
use skein_replica::server::{Broken, Files};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

/// A server's outputs, and its log.
#[derive(Debug)]
pub struct Recording {
    entries: File,
    frames: File,
}

impl Recording {
    /// Reads both from their beginnings.
    pub(super) fn read(&self) -> io::Result<(Entries, Frames)> {
        // Copies share their positions: one reader at a time.
        let rewound = |file: &File| {
            let mut file = file.try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            Ok::<_, io::Error>(BufReader::with_capacity(1 << 18, file))
        };
        Ok((Entries(rewound(&self.entries)?), Frames(rewound(&self.frames)?)))
    }
}

/// Records everything that passes.
#[derive(Debug)]
pub(super) struct Recorder {
    seen: Shared,
    entries: BufWriter<File>,
    frames: BufWriter<File>,
    result: std::sync::mpsc::Sender<io::Result<Recording>>,
    failed: Option<io::Error>,
}

impl Recorder {
    /// A recorder; its recording comes out of the channel when it is dropped.
    pub(super) fn new(
        seen: Shared,
        result: std::sync::mpsc::Sender<io::Result<Recording>>,
    ) -> io::Result<Self> {
        let writer =
            || Ok::<_, io::Error>(BufWriter::with_capacity(1 << 18, nameless(c"skein-recording")?));
        Ok(Self { seen, entries: writer()?, frames: writer()?, result, failed: None })
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    fn finish(&mut self) -> io::Result<Recording> {
        match self.failed.take() {
            Some(error) => return Err(error),
            None => {
                self.entries.flush()?;
                self.frames.flush()?;
            }
        }
        Ok(Recording {
            entries: self.entries.get_ref().try_clone()?,
            frames: self.frames.get_ref().try_clone()?,
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let result = self.finish();
        // No one waits for it any more.
        let _ = self.result.send(result);
    }
}

impl Tap for Recorder {
    fn launched(&mut self, files: Option<&Files>) {
        self.seen.lock().launched(files);
    }

    fn entry(&mut self, index: LogIndex, entry: &[u8]) {
        self.seen.lock().entry(entry);
        let result = (|| {
            self.entries.write_all(&index.0.to_le_bytes())?;
            self.entries.write_all(&(entry.len() as u32).to_le_bytes())?;
            self.entries.write_all(entry)
        })();
        self.note(result);
    }

    fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>) {
        self.seen.lock().frame(frame);
        if frame.is_output() {
            let result = self.frames.write_all(raw);
            self.note(result);
        }
    }

    fn drained(&mut self, header: &Header, rests: bool) {
        self.seen.lock().drained(header, rests);
    }
}

/// The recorded log.
pub(super) struct Entries(BufReader<File>);

impl Entries {
    /// The next entry, `None` behind the last one.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> io::Result<Option<LogIndex>> {
        let mut head = [0; 12];
        if !fill(&mut self.0, &mut head)? {
            return Ok(None);
        }
        let index = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
        let len = u32::from_le_bytes(head[8..].try_into().expect("4 bytes")) as usize;
        if len > MAX_ENTRY_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        into.resize(len, 0);
        self.0.read_exact(into)?;
        Ok(Some(LogIndex(index)))
    }
}

/// The recorded output.
#[derive(Debug)]
pub(super) struct Frames(BufReader<File>);

impl Frames {
    /// The next frame with its header and padding; false behind the last one.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        into.resize(FRAME_HEADER_BYTES, 0);
        if !fill(&mut self.0, into)? {
            return Ok(false);
        }
        let len = u32::from_le_bytes(into[4..8].try_into().expect("4 bytes")) as usize;
        if len > MAX_SEND_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        into.resize(pad8(FRAME_HEADER_BYTES + len), 0);
        self.0.read_exact(&mut into[FRAME_HEADER_BYTES..])?;
        Ok(true)
    }
}

/// Reads all of `into`; false at the end of the file.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    let mut done = 0;
    while done < into.len() {
        match from.read(&mut into[done..]) {
            Ok(0) if done == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// A frame of a recording, which the same code wrote.
pub(super) fn parse(raw: &[u8]) -> Result<OutFrame<'_>, Broken> {
    match OutFrame::parse(raw) {
        Ok(Some((frame, _))) => Ok(frame),
        Ok(None) => Err(Broken::new("half a frame")),
        Err(error) => Err(Broken::new(error)),
    }
}
