//! Reading a body: every byte that is given out has passed its block's checksum.

use std::sync::{Arc, OnceLock};

use millrace_io::{DiskFile, read_exactly_at};

use crate::BodyName;
use crate::bodies::Shared;
use crate::error::BlobError;
use crate::format::{BLOCK_BYTES, CRC_BYTES, FOOTER_BYTES, Footer, crc, table_bytes};
use crate::index::Location;

/// A body to read. It stays readable while this is held.
pub struct BodyReader {
    shared: Arc<Shared>,
    name: BodyName,
    location: Location,
    file: Arc<dyn DiskFile>,
    /// Read with the first bytes.
    table: OnceLock<Vec<u8>>,
}

impl BodyReader {
    pub(crate) fn new(shared: Arc<Shared>, name: BodyName, location: Location, file: Arc<dyn DiskFile>) -> Self {
        Self { shared, name, location, file, table: OnceLock::new() }
    }

    /// The body's bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.location.length
    }

    fn rot(&self, what: &str) -> BlobError {
        self.shared.note_rot(self.name);
        BlobError::Rot(self.name, what.to_owned())
    }

    fn data_at(&self) -> u64 {
        self.location.offset + self.location.front_bytes() as u64
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), BlobError> {
        match read_exactly_at(&*self.file, bytes, at) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(self.rot("its file is too short")),
            Err(error) => {
                self.shared.suspect(self.name);
                Err(BlobError::unreadable(&error))
            }
        }
    }

    fn table(&self) -> Result<&[u8], BlobError> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let bytes = usize::try_from(table_bytes(self.location.length)).map_err(|_| self.rot("its length is none"))?;
        let mut table = vec![0; bytes + FOOTER_BYTES];
        self.read(&mut table, self.data_at() + self.location.length)?;
        let footer = Footer::decode(&table[bytes..]).ok_or_else(|| self.rot("its footer"))?;
        table.truncate(bytes);
        let is_its = footer.number == self.name.number
            && footer.length == self.location.length
            && footer.table_crc == crc(&table);
        if !is_its {
            return Err(self.rot("its table of checksums"));
        }
        Ok(self.table.get_or_init(|| table))
    }

    /// Whether the footer and the table are those of the body.
    pub(crate) fn check_end(&self) -> Result<(), BlobError> {
        self.table().map(drop)
    }

    /// Reads as many bytes as `bytes` has, from `offset` on.
    ///
    /// # Errors
    /// [`BlobError::Rot`] where they are not what was written; [`BlobError::Misuse`] past the end.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BlobError> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.location.length);
        let end = end.ok_or(BlobError::Misuse("a read goes past the end of its body"))?;
        if bytes.is_empty() {
            return Ok(());
        }
        let block = BLOCK_BYTES as u64;
        let first = offset / block * block;
        let last = end.next_multiple_of(block).min(self.location.length);
        if first == offset && last == end {
            self.read(bytes, self.data_at() + first)?;
            return self.check(first / block, bytes);
        }
        let mut whole = vec![0; (last - first) as usize];
        self.read(&mut whole, self.data_at() + first)?;
        self.check(first / block, &whole)?;
        let from = (offset - first) as usize;
        bytes.copy_from_slice(&whole[from..from + bytes.len()]);
        Ok(())
    }

    fn check(&self, first_block: u64, bytes: &[u8]) -> Result<(), BlobError> {
        let table = self.table()?;
        for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let at = (first_block as usize + index) * CRC_BYTES;
            if table.get(at..at + CRC_BYTES) != Some(&crc(block).to_le_bytes()[..]) {
                return Err(self.rot(&format!("block {}", first_block as usize + index)));
            }
        }
        Ok(())
    }

    /// For whom it was written.
    ///
    /// # Errors
    /// [`BlobError::Rot`].
    pub fn owner(&self) -> Result<Vec<u8>, BlobError> {
        let mut front = vec![0; self.location.front_bytes()];
        self.read(&mut front, self.location.offset)?;
        let header = crate::format::Header::decode(&front).filter(|header| header.name == self.name);
        let header = header.ok_or_else(|| self.rot("its header"))?;
        crate::format::owner_of(&header, &front).ok_or_else(|| self.rot("its owner"))
    }
}
