//! Numbers of bodies. A directory never gives one twice, also not after a crash.
//!
//! The directory counts the ranges of 2³² numbers that were taken from it. A store takes one when it gives its first
//! number, and another when that is used up. It notes the range durably before it gives a number of it. So opening writes
//! nothing, and works on a full disk.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use millrace_io::{Disk, read_exactly_at};

use crate::bodies::Shared;
use crate::error::BlobError;
use crate::format::crc;

/// Counts the ranges that were taken.
pub(crate) const START: &str = "start";
const NEW_START: &str = "start.new";

/// The numbers of a range.
const RANGE_BITS: u32 = 32;

/// What is left of the range that was taken last.
#[derive(Default)]
pub(crate) struct Numbers(Mutex<Range<u64>>);

impl Numbers {
    /// The next number.
    ///
    /// # Errors
    /// [`BlobError::Full`], [`BlobError::Failed`] where a range cannot be noted.
    pub(crate) fn next(&self, shared: &Shared) -> Result<u64, BlobError> {
        let mut range = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if range.is_empty() {
            *range = take_range(shared)?;
        }
        range.next().ok_or(BlobError::Misuse("a range of numbers is empty"))
    }
}

/// How many ranges were taken.
pub(crate) fn ranges_taken(disk: &dyn Disk) -> io::Result<u32> {
    let file = match disk.open(START) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = [0; 8];
    read_exactly_at(&*file, &mut bytes, 0)?;
    let (number, check) = bytes.split_at(4);
    if check != crc(number).to_le_bytes() {
        return Err(io::Error::other("the file that counts the starts is damaged"));
    }
    Ok(u32::from_le_bytes([number[0], number[1], number[2], number[3]]))
}

/// Takes a range, and notes it whether bodies are synced or not: a number that is given twice would mix up two bodies.
fn take_range(shared: &Shared) -> Result<Range<u64>, BlobError> {
    let disk = &*shared.disk;
    let taken = ranges_taken(disk).map_err(|error| BlobError::Failed(error.to_string()))?;
    let range = taken
        .max(shared.options.ranges_behind)
        .checked_add(1)
        .ok_or(BlobError::Misuse("the directory has no more numbers"))?;
    let file = disk.create(NEW_START).map_err(|error| BlobError::not_made(&error))?;
    let number = range.to_le_bytes();
    let content = [&number[..], &crc(&number).to_le_bytes()].concat();
    file.write_at(&content, 0).map_err(|error| BlobError::not_made(&error))?;
    file.sync_data().map_err(|error| shared.fail_all(&error))?;
    disk.rename(NEW_START, START).map_err(|error| BlobError::not_made(&error))?;
    shared.sync_names_always("")?;
    Ok(u64::from(range) << RANGE_BITS..(u64::from(range) + 1) << RANGE_BITS)
}

/// The bits of a number that tell directories from each other that hold each other's bodies.
const DIRECTORY_SHIFT: u32 = RANGE_BITS + 24;

/// Whether a number may have been given: here, of so many ranges, or by a directory that holds the same bodies.
pub(crate) fn may_be_given(number: u64, ranges: u32, ranges_behind: u32) -> bool {
    let own = (u64::from(ranges_behind) << RANGE_BITS) >> DIRECTORY_SHIFT;
    let other = number >> DIRECTORY_SHIFT;
    if own > 0 && other != own {
        return other > 0;
    }
    let first = (own << DIRECTORY_SHIFT).max(1 << RANGE_BITS);
    (first..(u64::from(ranges) + 1) << RANGE_BITS).contains(&number)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_io::RealDisk;

    use super::*;
    use crate::{Bodies, BodyOptions};

    #[test]
    fn a_range_that_is_used_up_is_followed_by_one_that_no_start_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || {
            let opened = Bodies::open(Arc::new(RealDisk::new(folder.path())), BodyOptions::default());
            opened.expect("the store opens").0.shared
        };
        let shared = open();
        assert_eq!(shared.numbers.next(&shared), Ok(1 << RANGE_BITS));
        let end = 2 << RANGE_BITS;
        *shared.numbers.0.lock().expect("no panic") = end - 1..end;
        assert_eq!(shared.numbers.next(&shared), Ok(end - 1));
        assert_eq!(shared.numbers.next(&shared), Ok(end));
        let shared = open();
        assert_eq!(shared.numbers.next(&shared), Ok(3 << RANGE_BITS));
        assert!(may_be_given(3 << RANGE_BITS, 3, 0) && !may_be_given(3 << RANGE_BITS, 2, 0));
    }

    #[test]
    fn directories_that_hold_each_others_bodies_give_other_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |ranges_behind| {
            let options = BodyOptions { ranges_behind, ..BodyOptions::default() };
            let opened = Bodies::open(Arc::new(RealDisk::new(folder.path())), options);
            opened.expect("the store opens").0.shared
        };
        let number = |behind| {
            let shared = open(behind);
            shared.numbers.next(&shared).expect("a number")
        };
        let node = |node: u32, range: u32| node << 24 | range;
        let first = |range: u32| u64::from(range) << RANGE_BITS;
        assert_eq!(number(node(2, 0)), first(node(2, 1)));
        assert_eq!(number(node(2, 0)), first(node(2, 2)), "the next start has the next range");
        assert_eq!(number(node(2, 700)), first(node(2, 701)), "one that has lost its past begins behind it");
        let may_be = |number| may_be_given(number, node(2, 701), node(2, 0));
        assert!(may_be(first(node(2, 701))) && may_be(first(node(3, 9000))));
        assert!(!may_be(first(node(2, 702))) && !may_be(first(1)));
    }
}
