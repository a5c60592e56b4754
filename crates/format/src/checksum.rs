//! CRC32C (Castagnoli), the checksum of everything on disk.

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
    }
}
