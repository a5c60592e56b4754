//! The headers of segments and batches, with their checksums as given, and made right.

use millrace_format::{BatchHeader, SegmentHeader, crc32c};

const CHECKSUM_AT: usize = 60;

pub(crate) fn run(bytes: &[u8]) {
    check(bytes);
    if let Some(fields) = bytes.get(..CHECKSUM_AT) {
        check(&[fields, &crc32c(fields).to_le_bytes()].concat());
    }
}

fn check(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
    if let Some((header, checksum)) = BatchHeader::decode(bytes) {
        assert_eq!(header.encode().1, checksum);
        let _ = header.total_bytes();
    }
}
