//! What proves that a batch at the end of a stream was never acknowledged.
//!
//! Segments of replicated shards are zeros before batches are written to them. A disk writes a sector as a whole or not at
//! all. So a sector of zeros inside a batch was not written, unless the batch holds zeros there itself: its header tells.

/// Bytes that a disk writes as a whole or not at all. Larger sectors consist of these.
pub(crate) const SECTOR_BYTES: usize = 512;

/// Bytes that a frame's checksum may take at the end of a sector. They change when the frame is bound, after the check.
const CHECKSUM_BYTES: usize = 8;

/// Whether some sector of `image`, which begins on a sector's boundary, is all zeros. If `is_unbound`, also where only a
/// checksum at its end keeps it from being so.
pub(crate) fn has_zero_sector(image: &[u8], is_unbound: bool) -> bool {
    let spared = if is_unbound { CHECKSUM_BYTES } else { 0 };
    // The first sector has the header.
    image.chunks(SECTOR_BYTES).skip(1).any(|sector| {
        let counted = if sector.len() == SECTOR_BYTES { SECTOR_BYTES - spared } else { sector.len() };
        sector[..counted].iter().all(|byte| *byte == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_of_zeros_is_seen_wherever_it_lies() {
        let mut image = vec![1; 4 * SECTOR_BYTES + 7];
        assert!(!has_zero_sector(&image, true));
        image[..SECTOR_BYTES].fill(0);
        assert!(!has_zero_sector(&image, true), "that of the header does not count");
        image[2 * SECTOR_BYTES..3 * SECTOR_BYTES - 4].fill(0);
        assert_eq!([true, false].map(|is_unbound| has_zero_sector(&image, is_unbound)), [true, false]);
        image[3 * SECTOR_BYTES - 4..3 * SECTOR_BYTES].fill(0);
        assert!(has_zero_sector(&image, false));
        image[2 * SECTOR_BYTES] = 1;
        assert!(!has_zero_sector(&image, true));
        image[4 * SECTOR_BYTES..].fill(0);
        assert!(has_zero_sector(&image, true), "the last one is cut short by the batch's end");
    }
}
