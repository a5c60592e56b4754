//! Sends what a backup is of, while the node goes on.

use std::fs::File;
use std::io::{self, Read, Write};

use bytes::{Bytes, BytesMut};
use millrace_backup::{ArchiveWriter, Sent};
use millrace_manifest::MANIFEST_FILE;
use tokio::sync::mpsc;

use super::capture::{Capture, Source};
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
    let sent = send_files(&mut archive, &capture, copies.as_ref());
    let files = capture.sources.len();
    let ended = match sent {
        Ok(bytes) => archive.finish(about(&capture)).and_then(|mut out| out.flush()).map(|()| bytes),
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

fn about(capture: &Capture) -> Sent {
    Sent {
        server: env!("CARGO_PKG_VERSION").to_owned(),
        identity: format!("{:032x}", u128::from_be_bytes(capture.identity)),
        taken_ms: capture.taken_ms,
    }
}

fn send_files(archive: &mut ArchiveWriter<Out>, capture: &Capture, copies: Option<&Copies>) -> io::Result<u64> {
    let mut sum = 0;
    for folder in &capture.folders {
        archive.folder(folder)?;
    }
    for source in &capture.sources {
        sum += send_file(archive, source)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.path)))?;
    }
    if let Some(copies) = copies {
        sum += copies.add_to(archive)?;
    }
    archive.file(MANIFEST_FILE, capture.manifest.len() as u64, &capture.manifest[..])?;
    Ok(sum)
}

fn send_file(archive: &mut ArchiveWriter<Out>, source: &Source) -> io::Result<u64> {
    let file = File::open(&source.from)?;
    let bytes = match source.bytes {
        Some(bytes) => bytes,
        None => file.metadata()?.len(),
    };
    let whole = bytes + source.end.len() as u64;
    archive.file(&source.path, whole, file.take(bytes).chain(&source.end[..]))?;
    Ok(whole)
}
