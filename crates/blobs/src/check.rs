//! For fuzzing: whatever bytes a disk gives, nothing panics, and what is taken is what would be written.

use std::io;

use millrace_io::DiskFile;

use crate::format::{Footer, Header, OWNER_CRC_BYTES, owner_of, segment_index};
use crate::walk::walk;

/// Reads bytes as each thing that may be on the disk.
///
/// # Panics
/// Where a decoder takes what nobody writes.
pub fn check_bytes(bytes: &[u8]) {
    if let Some(header) = Header::decode(bytes)
        && let Some(owner) = owner_of(&header, bytes)
    {
        assert_eq!(header.encode(&owner), bytes[..header.front_bytes()]);
        assert_eq!(header.front_bytes(), header.encode(&[]).len() + owner.len());
    }
    if let Some(footer) = Footer::decode(bytes) {
        assert_eq!(footer.encode(), *bytes);
    }
    if let Some((segment_bytes, rows)) = segment_index::decode(bytes) {
        assert_eq!(segment_index::encode(segment_bytes, &rows), bytes);
    }
    let length = bytes.len() as u64;
    if let Ok(walked) = walk(&Bytes(bytes), length) {
        for row in walked.rows.iter().chain(&walked.found) {
            let data = row.offset + (crate::format::HEADER_BYTES + OWNER_CRC_BYTES) as u64 + u64::from(row.owner_bytes);
            assert!(data + row.length <= length, "a body that is whole lies inside");
        }
    }
}

/// A file that is read only.
struct Bytes<'a>(&'a [u8]);

impl DiskFile for Bytes<'_> {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}
