//! A segment that the first version wrote opens in every later version, and gives the same entries.

use crate::common::*;
use millrace_base::Lsn;
use millrace_log::inspect;

const GOLDEN: &[u8] = include_bytes!("../golden/segment-v1.log");
const PATH: &str = "log/0000000001/0000000001.log";

/// What the golden segment holds.
fn expected() -> Vec<Delivered> {
    vec![seen(1, 1), seen(2, 1), seen(1, 2), seen(63, 1), seen(1, 3)]
}

fn write() -> MemoryDisk {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    writer.append(&mut batch_of(&[(1, 1), (2, 1), (1, 2)])).expect("appended");
    writer.append(&mut batch_of(&[(63, 1), (1, 3)])).expect("appended");
    writer.close().expect("closed");
    disk
}

#[test]
fn an_old_segment_opens() {
    let disk = MemoryDisk::default();
    disk.put(PATH, GOLDEN);
    let mut places = Vec::new();
    let report = inspect(&disk, &mut |place, _| places.push((place.batch, place.offset))).expect("inspected");
    assert_eq!(places, [(1, 4160), (1, 4214), (1, 4268), (2, 8256), (2, 8311)]);
    assert!(report.damage.is_empty() && report.streams[0].is_closed);
    let (entries, recovered) = recover_all(&disk).expect("recovered");
    assert_eq!(entries, expected());
    assert_eq!((recovered.next_run, recovered.unclosed.len()), (2, 0));
    assert_eq!(disk.contents()[PATH], GOLDEN, "a closed stream is not written to");
    assert_eq!(recover_above(&disk, &|_| Lsn(1)).expect("recovered").0, [seen(1, 2), seen(1, 3)]);
}

#[test]
fn the_writer_still_writes_these_bytes() {
    assert!(write().contents()[PATH] == GOLDEN, "the format changed: give it a new version and keep this file");
}

/// Writes the file anew. Use it only for a new version, under a new name.
#[test]
#[ignore = "makes the golden file"]
#[allow(clippy::disallowed_methods, reason = "writes into the source tree")]
fn make() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/segment-v1.log");
    std::fs::write(path, &write().contents()[PATH]).expect("written");
}
