//! The bytes of a body on the disk: the same in a segment and in a file of its own.
//!
//! ```text
//! header    64 bytes: magic "MBD1", version 1, zero, owner bytes (u16), shard (u16), 6 zero bytes, number (u64),
//!                     length (u64, all ones where it was not known), 28 zero bytes, CRC-32C of these 60 bytes
//! owner     so many bytes as the header says, and CRC-32C of them
//! data      the body
//! table     CRC-32C of each 64 KiB of the data
//! footer    32 bytes: magic "MBF1", 4 zero bytes, number (u64), length (u64), CRC-32C of the table, CRC-32C of these 28
//! ```
//! Numbers are little-endian. Byte tables with examples are in `docs/internals/objects.md`.

use crc_fast::{CrcAlgorithm, Digest};
use millrace_base::ShardId;

use crate::BodyName;

/// Bytes that have a checksum together. A read of one byte reads so many.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of an owner: a bucket's name, an object's key, an upload's id, and some more.
pub const OWNER_BYTES: usize = 2 << 10;

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const FOOTER_BYTES: usize = 32;
pub(crate) const OWNER_CRC_BYTES: usize = 4;
pub(crate) const CRC_BYTES: usize = 4;

pub(crate) const HEADER_MAGIC: [u8; 4] = *b"MBD1";
const FOOTER_MAGIC: [u8; 4] = *b"MBF1";
const VERSION: u8 = 1;

/// The length of a body that was begun without one.
pub(crate) const UNKNOWN_LENGTH: u64 = u64::MAX;

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A CRC over bytes as they come.
pub(crate) struct RunningCrc(Digest);

impl RunningCrc {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC so far; the next one begins anew.
    pub(crate) fn take(&mut self) -> u32 {
        self.0.finalize_reset() as u32
    }
}

/// What stands before a body's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub name: BodyName,
    pub owner_bytes: u16,
    pub length: u64,
}

impl Header {
    /// Header and owner as they are written.
    pub(crate) fn encode(&self, owner: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.front_bytes());
        bytes.extend_from_slice(&HEADER_MAGIC);
        bytes.extend_from_slice(&[VERSION, 0]);
        bytes.extend_from_slice(&self.owner_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.name.shard.0.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&self.name.number.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.resize(HEADER_BYTES - CRC_BYTES, 0);
        let check = crc(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes.extend_from_slice(owner);
        bytes.extend_from_slice(&crc(owner).to_le_bytes());
        bytes
    }

    /// Reads a header; `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let (content, check) = bytes.split_at(HEADER_BYTES - CRC_BYTES);
        let is_right = content[..4] == HEADER_MAGIC && content[4] == VERSION && check == crc(content).to_le_bytes();
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        // Another version may give them a meaning.
        let is_right = is_right && content[5] == 0 && is_zero(&content[10..16]) && is_zero(&content[32..]);
        let header = Self {
            owner_bytes: u16::from_le_bytes(content[6..8].try_into().ok()?),
            name: BodyName {
                shard: ShardId(u16::from_le_bytes(content[8..10].try_into().ok()?)),
                number: u64::from_le_bytes(content[16..24].try_into().ok()?),
            },
            length: u64::from_le_bytes(content[24..32].try_into().ok()?),
        };
        (is_right && usize::from(header.owner_bytes) <= OWNER_BYTES).then_some(header)
    }

    /// Bytes before the data.
    pub(crate) fn front_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(self.owner_bytes) + OWNER_CRC_BYTES
    }
}

/// The owner behind a header; `None` where it is damaged.
pub(crate) fn owner_of(header: &Header, bytes: &[u8]) -> Option<Vec<u8>> {
    let end = HEADER_BYTES + usize::from(header.owner_bytes);
    let owner = bytes.get(HEADER_BYTES..end)?;
    (bytes.get(end..end + OWNER_CRC_BYTES)? == crc(owner).to_le_bytes()).then(|| owner.to_vec())
}

/// Bytes of the table of a body of this length.
pub(crate) fn table_bytes(length: u64) -> u64 {
    length.div_ceil(BLOCK_BYTES as u64) * CRC_BYTES as u64
}

/// Bytes that a body takes in all, if that is a number.
pub(crate) fn record_bytes(front_bytes: usize, length: u64) -> Option<u64> {
    (front_bytes as u64 + FOOTER_BYTES as u64).checked_add(length)?.checked_add(table_bytes(length))
}

/// What stands behind a body's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub number: u64,
    pub length: u64,
    pub table_crc: u32,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..4].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.table_crc.to_le_bytes());
        let check = crc(&bytes[..28]);
        bytes[28..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a footer; `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FOOTER_BYTES] = bytes.try_into().ok()?;
        let is_right =
            bytes[..4] == FOOTER_MAGIC && bytes[4..8] == [0; 4] && bytes[28..] == crc(&bytes[..28]).to_le_bytes();
        let footer = Self {
            number: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            length: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            table_crc: u32::from_le_bytes(bytes[24..28].try_into().ok()?),
        };
        is_right.then_some(footer)
    }
}

/// The index of a closed segment: where its bodies lie.
pub(crate) mod segment_index {
    use super::{CRC_BYTES, crc};
    use crate::BodyName;
    use millrace_base::ShardId;

    const MAGIC: [u8; 8] = *b"MBIDX\0\0\x01";
    const ROW_BYTES: usize = 32;

    /// One body.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Row {
        pub name: BodyName,
        pub offset: u64,
        pub length: u64,
        pub owner_bytes: u16,
    }

    /// The index, of a segment that has so many bytes.
    pub(crate) fn encode(segment_bytes: u64, rows: &[Row]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24 + rows.len() * ROW_BYTES + CRC_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&(rows.len() as u64).to_le_bytes());
        for row in rows {
            bytes.extend_from_slice(&row.name.shard.0.to_le_bytes());
            bytes.extend_from_slice(&row.owner_bytes.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&row.name.number.to_le_bytes());
            bytes.extend_from_slice(&row.offset.to_le_bytes());
            bytes.extend_from_slice(&row.length.to_le_bytes());
        }
        let check = crc(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The segment's bytes and its bodies; `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, Vec<Row>)> {
        let (content, check) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
        if check != crc(content).to_le_bytes() || content.get(..8)? != MAGIC {
            return None;
        }
        let segment_bytes = u64::from_le_bytes(content.get(8..16)?.try_into().ok()?);
        let count = u64::from_le_bytes(content.get(16..24)?.try_into().ok()?);
        let rows = content.get(24..)?;
        if count.checked_mul(ROW_BYTES as u64)? != rows.len() as u64 {
            return None;
        }
        let row = |row: &[u8]| {
            if row[4..8] != [0; 4] {
                return None;
            }
            Some(Row {
                name: BodyName {
                    shard: ShardId(u16::from_le_bytes(row[..2].try_into().ok()?)),
                    number: u64::from_le_bytes(row[8..16].try_into().ok()?),
                },
                owner_bytes: u16::from_le_bytes(row[2..4].try_into().ok()?),
                offset: u64::from_le_bytes(row[16..24].try_into().ok()?),
                length: u64::from_le_bytes(row[24..32].try_into().ok()?),
            })
        };
        let rows = rows.chunks_exact(ROW_BYTES).map(row).collect::<Option<Vec<_>>>()?;
        Some((segment_bytes, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> BodyName {
        BodyName { shard: ShardId(3), number: 0x1_0000_0007 }
    }

    #[test]
    fn headers_and_footers_come_back_and_no_changed_byte_passes() {
        let header = Header { name: name(), owner_bytes: 5, length: 70_000 };
        let bytes = header.encode(b"owner");
        assert_eq!(bytes.len(), header.front_bytes());
        assert_eq!(Header::decode(&bytes), Some(header.clone()));
        assert_eq!(owner_of(&header, &bytes).as_deref(), Some(&b"owner"[..]));
        let footer = Footer { number: 7, length: 70_000, table_crc: 9 };
        assert_eq!(Footer::decode(&footer.encode()), Some(footer.clone()));
        for at in 0..HEADER_BYTES {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Header::decode(&changed), None, "{at}");
        }
        for at in 0..FOOTER_BYTES {
            let mut changed = footer.encode();
            changed[at] ^= 1;
            assert_eq!(Footer::decode(&changed), None, "{at}");
        }
        for end in 0..bytes.len() {
            let _ = Header::decode(&bytes[..end]).map(|header| owner_of(&header, &bytes[..end]));
        }
    }

    #[test]
    fn an_index_comes_back_and_no_changed_byte_passes() {
        let row = segment_index::Row { name: name(), offset: 9, length: 11, owner_bytes: 2 };
        let bytes = segment_index::encode(4096, &[row.clone(), row.clone()]);
        assert_eq!(segment_index::decode(&bytes), Some((4096, vec![row.clone(), row])));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert_eq!(segment_index::decode(&changed), None, "{at}");
            assert_eq!(segment_index::decode(&bytes[..at]), None, "{at}");
        }
    }

    /// The bytes that stand in `docs/internals/objects.md`.
    #[test]
    fn golden() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let header = Header { name: name(), owner_bytes: 1, length: 2 }.encode(b"o");
        assert_eq!(
            hex(&header),
            "4d4244310100010003000000000000000700000001000000020000000000000000000000000000000000000000000000000000000000000000000000154755166f17fca86d"
        );
        assert_eq!(
            hex(&Footer { number: 7, length: 2, table_crc: 9 }.encode()),
            "4d4246310000000007000000000000000200000000000000090000009baeebcf"
        );
        let row = segment_index::Row { name: name(), offset: 9, length: 11, owner_bytes: 2 };
        assert_eq!(
            hex(&segment_index::encode(4096, &[row])),
            "4d42494458000001001000000000000001000000000000000300020000000000070000000100000009000000000000000b0000000000000018979306"
        );
    }
}
