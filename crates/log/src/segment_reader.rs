//! Reads batches out of one segment file.

use std::io;
use std::sync::Arc;

use millrace_format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, read_frame,
};
use millrace_io::{Disk, DiskFile};

use crate::layout::SegmentFile;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes read at a time: large enough to make calls rare, small enough to stay in the cache.
const WINDOW_BYTES: u64 = 1 << 20;

const _: () = assert!(SEGMENT_HEADER_BYTES <= BLOCK_BYTES && BATCH_HEADER_BYTES <= BLOCK_BYTES);

/// A segment file with a window on its bytes.
pub(crate) struct SegmentReader {
    file: Arc<dyn DiskFile>,
    pub(crate) length: u64,
    stream: u64,
    number: u64,
    /// The salt of the header. If the segment's header is lost, the salt is not compared.
    salt: Option<u64>,
    window: Vec<u8>,
    window_start: u64,
}

/// What was read at a place where a batch may begin.
pub(crate) enum Read {
    /// No header of a batch of this segment.
    NoBatch,
    /// A header, and whether all that it announces is there and intact.
    Batch { header: BatchHeader, binding: u32, is_whole: bool },
}

impl SegmentReader {
    pub(crate) fn open(disk: &dyn Disk, stream: u64, segment: &SegmentFile, window: Vec<u8>) -> io::Result<Self> {
        Ok(Self {
            file: segment.open(disk)?,
            length: segment.length,
            stream,
            number: segment.number,
            salt: segment.header.as_ref().ok().map(|header| header.salt),
            window_start: u64::MAX,
            window,
        })
    }

    /// Gives the window's memory to the next reader.
    pub(crate) fn into_window(self) -> Vec<u8> {
        self.window
    }

    /// The bytes at `offset`; fewer than `count` only if the file ends.
    pub(crate) fn view(&mut self, offset: u64, count: u64) -> io::Result<&[u8]> {
        let count = count.min(self.length.saturating_sub(offset));
        let window_end = self.window_start.saturating_add(self.window.len() as u64);
        if offset < self.window_start || offset + count > window_end {
            let wanted = count.max(WINDOW_BYTES).min(self.length.saturating_sub(offset));
            let wanted = usize::try_from(wanted).map_err(|_| io::ErrorKind::FileTooLarge)?;
            self.window.resize(wanted, 0);
            self.window_start = u64::MAX;
            let filled = self.file.read_at(&mut self.window, offset)?;
            self.window.truncate(filled);
            self.window_start = offset;
        }
        // Both differences are below the window's length, which is a usize.
        let start = (offset - self.window_start) as usize;
        let end = start.saturating_add(count as usize).min(self.window.len());
        Ok(self.window.get(start..end).unwrap_or_default())
    }

    /// The header of a batch of this segment at `offset`, and its checksum.
    pub(crate) fn header_at(&mut self, offset: u64) -> io::Result<Option<(BatchHeader, u32)>> {
        let (stream, number, salt) = (self.stream, self.number, self.salt);
        let decoded = BatchHeader::decode(self.view(offset, BATCH_HEADER_BYTES as u64)?);
        Ok(decoded.filter(|(header, _)| {
            let is_own = header.stream == stream && header.segment == number;
            is_own && salt.is_none_or(|salt| salt == header.salt)
        }))
    }

    /// Reads the batch at `offset` and checks everything in it.
    pub(crate) fn batch_at(&mut self, offset: u64) -> io::Result<Read> {
        let Some((header, binding)) = self.header_at(offset)? else {
            return Ok(Read::NoBatch);
        };
        let payload = self.payload(offset, &header)?;
        let is_whole = payload.len() as u64 == header.payload_bytes && is_intact(payload, &header, binding);
        Ok(Read::Batch { header, binding, is_whole })
    }

    /// The payload of the batch at `offset`, cut at the file's end.
    pub(crate) fn payload(&mut self, offset: u64, header: &BatchHeader) -> io::Result<&[u8]> {
        let bytes = self.view(offset, header.payload_bytes.saturating_add(BATCH_HEADER_BYTES as u64))?;
        Ok(bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default())
    }

    /// The first batch header at or after `offset` that `wanted` accepts.
    pub(crate) fn find_header(
        &mut self,
        mut offset: u64,
        wanted: &mut dyn FnMut(u64, &BatchHeader) -> bool,
    ) -> io::Result<()> {
        while offset < self.length {
            let found = self.header_at(offset)?;
            let length = match &found {
                Some((header, _)) => header.total_bytes().unwrap_or(BLOCK),
                None => BLOCK,
            };
            if let Some((header, _)) = found
                && !wanted(offset, &header)
            {
                return Ok(());
            }
            offset = offset.saturating_add(length);
        }
        Ok(())
    }
}

fn is_intact(payload: &[u8], header: &BatchHeader, binding: u32) -> bool {
    let mut rest = payload;
    for _ in 0..header.entry_count {
        match read_frame(rest, binding) {
            Some((body, true)) => rest = &rest[FRAME_HEADER_BYTES + body.len()..],
            _ => return false,
        }
    }
    rest.is_empty()
}
