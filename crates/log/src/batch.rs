//! The buffer that a core fills with entries while the log writes the batch before it.

use millrace_base::{Lsn, ShardId};
use millrace_format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, Entry, ReplicaRecord, bind_frames, encode_body_frame, encode_frame,
    encode_record_frame,
};

use crate::positions::{Bases, Positions, ShardRange};
use crate::torn::has_zero_sector;

/// A buffer that one big batch made larger than this gives its memory back.
const KEPT_BYTES: usize = 4 << 20;

/// Entries on their way to the log: one batch is one write and one fsync.
///
/// Entries are encoded and checksummed straight into one buffer, which is written as it is. In steady state nothing is
/// allocated. Fill one batch while the committer has the other.
#[derive(Debug)]
pub struct Batch {
    /// Room for the batch header, then frames. Padded to whole blocks only during the write.
    bytes: Vec<u8>,
    entry_count: u32,
    positions: Positions,
    committed: Positions,
    /// Where the bases of replicated shards lie.
    bases: Bases,
    /// Whether it holds records of replicated shards.
    is_replicated: bool,
    /// The checksum to which the frames are bound (see `format::bind_frames`).
    binding: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_HEADER_BYTES],
            entry_count: 0,
            positions: Positions::default(),
            committed: Positions::default(),
            bases: Bases::default(),
            is_replicated: false,
            binding: 0,
        }
    }

    /// Adds an entry. Each shard's entries must come in the order of their LSNs, without gaps. Recovery takes anything
    /// else for damage.
    ///
    /// # Panics
    /// As [`Entry::encode`]. Never, if the caller keeps the limits of `base`.
    pub fn push(&mut self, entry: &Entry<'_>) {
        let start = self.bytes.len();
        encode_frame(entry, &mut self.bytes);
        if self.binding != 0 {
            bind_frames(&mut self.bytes[start..], self.binding);
        }
        self.entry_count += 1;
        self.positions.note(entry.shard, entry.lsn);
    }

    /// Adds a record of a replicated shard. A shard's records take effect in the order in which they are added. A stream
    /// begins with a [`ReplicaRecord::Base`] of each shard, and each shard gets another one after each change of segment
    /// ([`crate::AppendReport::began_segment`]): without it no segment before that is ever deleted.
    ///
    /// A log holds either entries or records, never both.
    ///
    /// # Panics
    /// Never, if the caller keeps the limits of `base`.
    pub fn push_record(&mut self, shard: ShardId, record: &ReplicaRecord<'_>) {
        let start = self.bytes.len();
        encode_record_frame(shard, record, &mut self.bytes);
        if self.binding != 0 {
            bind_frames(&mut self.bytes[start..], self.binding);
        }
        self.entry_count += 1;
        self.is_replicated = true;
        match record {
            ReplicaRecord::Entry { lsn, .. } => self.positions.note(shard, *lsn),
            ReplicaRecord::Base { base_lsn, .. } => {
                self.positions.touch(shard);
                self.bases.note(shard, *base_lsn);
            }
            _ => self.positions.touch(shard),
        }
    }

    /// Adds an entry that is encoded already.
    pub(crate) fn push_body(&mut self, shard: ShardId, lsn: Lsn, body: &[u8]) {
        let start = self.bytes.len();
        encode_body_frame(body, &mut self.bytes);
        if self.binding != 0 {
            bind_frames(&mut self.bytes[start..], self.binding);
        }
        self.entry_count += 1;
        self.positions.note(shard, lsn);
    }

    /// Whether no entry was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// How many entries were added.
    #[must_use]
    pub fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// Bytes of the entries, frames included.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len() - BATCH_HEADER_BYTES
    }

    /// Per shard, the first and last LSN added. A shard of which only other records were added has a first LSN above its
    /// last.
    #[must_use]
    pub fn positions(&self) -> &[ShardRange] {
        self.positions.ranges()
    }

    /// Per shard, the first and last LSN of the last successful append of this buffer. These entries are durable now;
    /// the batch itself is empty again by then.
    #[must_use]
    pub fn committed(&self) -> &[ShardRange] {
        self.committed.ranges()
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.bytes.truncate(BATCH_HEADER_BYTES);
        self.bytes.shrink_to(KEPT_BYTES);
        self.entry_count = 0;
        self.positions.clear();
        self.bases.clear();
        self.is_replicated = false;
        self.binding = 0;
    }

    /// Empties the batch after its append, and keeps its positions in [`Batch::committed`].
    pub(crate) fn set_committed(&mut self) {
        std::mem::swap(&mut self.positions, &mut self.committed);
        self.clear();
    }

    pub(crate) fn noted(&self) -> &Positions {
        &self.positions
    }

    pub(crate) fn bases(&self) -> &Bases {
        &self.bases
    }

    /// Bytes the batch takes in a segment.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.bytes.len().next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Gives `write` the batch as it lies in a segment under `header`. Afterwards the batch is as before, so a failed
    /// write can be tried again, also under another header.
    pub(crate) fn with_image<R>(&mut self, header: &BatchHeader, write: impl FnOnce(&[u8]) -> R) -> R {
        let length = self.bytes.len();
        // The log of a single node has no use for the mark and stays as it always was.
        let has_zeros = self.is_replicated && has_zero_sector(&self.bytes, true);
        let (encoded, checksum) = BatchHeader { has_zeros, ..*header }.encode();
        bind_frames(&mut self.bytes[BATCH_HEADER_BYTES..], checksum ^ self.binding);
        self.binding = checksum;
        self.bytes[..BATCH_HEADER_BYTES].copy_from_slice(&encoded);
        // Whole blocks, so that the page cache never has to read a block before it changes it.
        self.bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        let result = write(&self.bytes);
        self.bytes.truncate(length);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::UnixMillis;
    use millrace_format::read_frame;

    fn entry(lsn: u64) -> Entry<'static> {
        Entry { shard: ShardId(1), lsn: Lsn(lsn), time: UnixMillis(0), writes: &[] }
    }

    fn header(batch: &Batch, number: u64) -> BatchHeader {
        BatchHeader {
            stream: 1,
            segment: 1,
            salt: 9,
            number,
            synced: number - 1,
            payload_bytes: batch.payload_bytes() as u64,
            entry_count: batch.entry_count(),
            is_closing: false,
            has_zeros: false,
            is_doubtful: false,
        }
    }

    fn valid_frames(image: &[u8]) -> u32 {
        let (header, binding) = BatchHeader::decode(image).expect("a header");
        let mut payload = &image[BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + header.payload_bytes as usize];
        let mut count = 0;
        while let Some((body, true)) = read_frame(payload, binding) {
            payload = &payload[8 + body.len()..];
            count += 1;
        }
        assert!(payload.is_empty());
        count
    }

    #[test]
    fn a_batch_can_be_written_again_and_added_to_in_between() {
        let mut batch = Batch::new();
        for round in 1..4 {
            batch.push(&entry(round));
            let header = header(&batch, round);
            let frames = batch.with_image(&header, |image| {
                assert_eq!(image.len(), BLOCK_BYTES);
                valid_frames(image)
            });
            assert_eq!(u64::from(frames), round);
        }
        batch.set_committed();
        assert!(batch.is_empty() && batch.positions().is_empty());
        assert_eq!((batch.committed()[0].first, batch.committed()[0].last), (Lsn(1), Lsn(3)));
        batch.push(&entry(4));
        assert_eq!(batch.entry_count(), 1);
        let header = header(&batch, 4);
        assert_eq!(batch.with_image(&header, valid_frames), 1);
    }
}
