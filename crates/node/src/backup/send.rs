//! Sends what a backup is of, while the node goes on.

use std::fs::File;
use std::io::{self, Read, Seek, Take, Write};

use bytes::{Bytes, BytesMut};
use millrace_backup::{ArchiveWriter, Missing, Sent};
use millrace_blobs::Cursor;
use millrace_manifest::MANIFEST_FILE;
use tokio::sync::mpsc;

use super::capture::{Capture, Source, missing};
use super::copies::{Copies, StayHeld};
use crate::core::Shared;

/// Bytes of a piece. The front hands on so many without asking for room.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that are read before the one before them has left.
pub(super) const PIECES_AHEAD: usize = 8;

/// A reader that has gone: no reason to say anything in the log.
const GONE: io::ErrorKind = io::ErrorKind::BrokenPipe;

/// Pieces on their way to whoever asked.
struct Out {
    sender: mpsc::Sender<Bytes>,
    piece: BytesMut,
    others: Option<StayHeld>,
}

impl Out {
    fn push(&mut self) -> io::Result<()> {
        if let Some(others) = &mut self.others {
            others.remind();
        }
        let piece = self.piece.split().freeze();
        self.sender.blocking_send(piece).map_err(|_| GONE.into())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE_BYTES {
            self.push()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.push() }
    }
}

/// Sends all of it, then lets go of what was held.
pub(super) fn send(shared: &Shared, (mut capture, copies): (Capture, Option<Copies>), sender: mpsc::Sender<Bytes>) {
    let began_ns = shared.clock.monotonic_ns();
    let others = copies.as_ref().map(Copies::stay_held);
    let out = Out { sender, piece: BytesMut::with_capacity(PIECE_BYTES), others };
    let mut archive = ArchiveWriter::new(out);
    let sent = send_files(&mut archive, (shared, &mut capture), copies.as_ref());
    let files = capture.sources.len();
    let ended = match sent {
        Ok(bytes) => archive.finish(about(&mut capture)).and_then(|mut out| out.flush()).map(|()| bytes),
        Err(error) if error.kind() == GONE => Err(error),
        Err(error) => {
            // In the middle of a file nobody can read this, and the end is missing all the same.
            let _ = archive.break_off(&error.to_string()).and_then(|mut out| out.flush());
            Err(error)
        }
    };
    let took_ms = (shared.clock.monotonic_ns() - began_ns) / 1_000_000;
    match ended {
        Ok(bytes) => tracing::info!(files, bytes, took_ms, paused_us = capture.paused_us, "sent a backup"),
        Err(error) => tracing::warn!(files, took_ms, %error, "a backup was not sent to its end"),
    }
    capture.release_log();
    drop(capture);
    shared.flusher.truncate_log();
}

fn about(capture: &mut Capture) -> Sent {
    capture.missing.sort();
    capture.missing.dedup();
    Sent {
        server: env!("CARGO_PKG_VERSION").to_owned(),
        identity: format!("{:032x}", u128::from_be_bytes(capture.identity)),
        taken_ms: capture.taken_ms,
        missing: std::mem::take(&mut capture.missing),
    }
}

fn send_files(
    archive: &mut ArchiveWriter<Out>,
    (shared, capture): (&Shared, &mut Capture),
    copies: Option<&Copies>,
) -> io::Result<u64> {
    let (mut sum, mut has_torn_bodies) = (0, false);
    for folder in &capture.folders {
        archive.folder(folder)?;
    }
    for source in &capture.sources {
        let (bytes, is_torn) = send_file(archive, source)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.path)))?;
        sum += bytes;
        has_torn_bodies |= is_torn;
    }
    if has_torn_bodies {
        capture.missing.extend(unreadable_bodies(shared));
    }
    if let Some(copies) = copies {
        let (bytes, missing) = copies.add_to(archive)?;
        sum += bytes;
        capture.missing.extend(missing);
    }
    archive.file(MANIFEST_FILE, capture.manifest.len() as u64, &capture.manifest[..])?;
    Ok(sum)
}

/// All bodies of this node are read: some file of them cannot be, and it may have many.
fn unreadable_bodies(shared: &Shared) -> Vec<Missing> {
    let mut found = Vec::new();
    let mut next = shared.bodies.as_ref().map(|store| (store, Cursor::default()));
    while let Some((store, cursor)) = next {
        let (rot, behind) = store.bodies.scrub(cursor, u64::MAX);
        found.extend(rot.iter().map(|body| missing(body.name, body.owner.as_deref())));
        next = behind.map(|behind| (store, behind));
    }
    found
}

/// Gives the bytes of the file, and whether some of them could not be read: then it is one of bodies.
fn send_file(archive: &mut ArchiveWriter<Out>, source: &Source) -> io::Result<(u64, bool)> {
    let file = File::open(&source.from)?;
    let bytes = match source.bytes {
        Some(bytes) => bytes,
        None => file.metadata()?.len(),
    };
    let whole = bytes + source.end.len() as u64;
    let (inner, is_patched) = (file.take(bytes), source.is_of_bodies());
    let mut patched = Patched { inner, page_bytes: PAGE_BYTES, is_patched, is_torn: false };
    archive.file(&source.path, whole, (&mut patched).chain(&source.end[..]))?;
    Ok((whole, patched.is_torn))
}

/// What the system reads of a disk at once: a read gives what is in front of a page that cannot be read, or nothing.
const PAGE_BYTES: u64 = 4096;

/// A file in which zeros stand for what cannot be read. Bodies have checksums, so what is restored is known to be damaged, and all
/// else in the file is there.
struct Patched<R> {
    inner: Take<R>,
    page_bytes: u64,
    is_patched: bool,
    is_torn: bool,
}

impl<R: Read + Seek> Read for Patched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Err(error) if self.is_patched && error.kind() != io::ErrorKind::Interrupted => {
                let left = self.inner.limit();
                // What comes behind the page may be whole.
                let page_left = self.page_bytes - self.inner.get_mut().stream_position()? % self.page_bytes;
                let count = buffer.len().min(usize::try_from(left.min(page_left)).unwrap_or(usize::MAX));
                self.inner.get_mut().seek_relative(count as i64)?;
                self.inner.set_limit(left - count as u64);
                buffer[..count].fill(0);
                self.is_torn = true;
                Ok(count)
            }
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor as Bytes, SeekFrom};

    use super::*;

    /// A disk that cannot read some bytes.
    struct Torn(Bytes<Vec<u8>>);

    impl Read for Torn {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(4);
            if (8..12).contains(&self.0.position()) {
                Err(io::Error::other("bad sector"))
            } else {
                self.0.read(&mut buffer[..count])
            }
        }
    }

    impl Seek for Torn {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    fn read(is_patched: bool) -> (io::Result<Vec<u8>>, bool) {
        let inner = Torn(Bytes::new(vec![7; 20])).take(18);
        let mut patched = Patched { inner, page_bytes: 4, is_patched, is_torn: false };
        let mut all = Vec::new();
        // Larger than what cannot be read: what comes behind that is whole.
        let mut piece = [0; 16];
        loop {
            match patched.read(&mut piece) {
                Ok(0) => return (Ok(all), patched.is_torn),
                Ok(count) => all.extend_from_slice(&piece[..count]),
                Err(error) => return (Err(error), patched.is_torn),
            }
        }
    }

    #[test]
    fn zeros_stand_for_what_cannot_be_read_of_bodies_and_of_nothing_else() {
        let (all, is_torn) = read(true);
        let mut expected = vec![7; 18];
        expected[8..12].fill(0);
        assert_eq!((all.expect("read"), is_torn), (expected, true));
        assert!(read(false).0.is_err());
    }
}
