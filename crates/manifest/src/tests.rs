//! Bytes, changes and refusals, on real files.

#![allow(clippy::disallowed_methods, reason = "tests use real files")]

use std::sync::Arc;

use millrace_io::{Disk, RealDisk};

use crate::{CheckpointRecord, Contents, MANIFEST_FILE, Manifest, ManifestError, fingerprint_of};

/// What version 1 looks like. A later build must read it.
const GOLDEN: &str = r#"millrace-manifest 1 349 b196b70c
{
  "identity": "000102030405060708090a0b0c0d0e0f",
  "generation": 7,
  "streams": {
    "7": {
      "first": 1,
      "last": 2,
      "is_synced": true,
      "closed": 19
    }
  },
  "checkpoint": {
    "mark": 5,
    "files": [
      "checkpoint/version"
    ]
  },
  "files": {
    "node.json": {
      "now": 7915960891752061596
    }
  }
}
"#;

fn directory() -> (tempfile::TempDir, Arc<dyn Disk>) {
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(folder.path()));
    (folder, disk)
}

fn again(disk: &Arc<dyn Disk>) -> Manifest {
    Manifest::open(disk).expect("readable").expect("there")
}

fn example() -> Contents {
    let (_folder, disk) = directory();
    let manifest = Manifest::new(&disk, std::array::from_fn(|index| index as u8));
    manifest.set_streams(std::collections::BTreeMap::new()).expect("written");
    manifest.add_segment(7, 1, true).expect("written");
    manifest.add_segment(7, 2, true).expect("written");
    manifest.close_stream(7, 2, 19).expect("written");
    manifest.replace_file("node.json", Some(b"{}"), || Ok(())).expect("written");
    let files = vec!["checkpoint/version".to_owned()];
    manifest.set_checkpoint(CheckpointRecord { mark: 5, files }).expect("written");
    manifest.contents()
}

#[test]
fn its_bytes_are_those_of_version_1() {
    let bytes = String::from_utf8(example().encode()).expect("text");
    assert_eq!(bytes, GOLDEN);
    assert_eq!(Contents::decode(GOLDEN.as_bytes()), Ok(example()));
}

#[test]
fn every_changed_byte_and_every_cut_is_refused() {
    let bytes = example().encode();
    let end = bytes.len() - 1;
    for index in 0..end {
        let mut changed = bytes.clone();
        changed[index] ^= 0x10;
        assert!(Contents::decode(&changed).is_err(), "byte {index}");
        assert!(Contents::decode(&bytes[..index]).is_err(), "cut at {index}");
    }
    let mut longer = bytes;
    longer.extend([0; 4096]);
    assert_eq!(Contents::decode(&longer), Ok(example()));
    assert!(Contents::decode(&longer[1..]).is_err());
}

#[test]
fn another_version_says_so() {
    let text = String::from_utf8(example().encode()).expect("text").replacen(" 1 ", " 2 ", 1);
    let error = Contents::decode(text.as_bytes()).expect_err("a later version");
    assert_eq!(error, "version 2 is not known to this build, which reads 1");
}

#[test]
fn a_change_is_there_after_a_restart_and_the_next_one_has_its_space() {
    let (folder, disk) = directory();
    assert!(Manifest::open(&disk).expect("nothing").is_none());
    let manifest = Manifest::new(&disk, [9; 16]);
    manifest.set_streams(std::collections::BTreeMap::new()).expect("written");
    manifest.add_segment(1, 1, true).expect("written");
    assert_eq!(again(&disk).contents(), manifest.contents());
    let next = std::fs::metadata(folder.path().join("manifest.new")).expect("kept");
    assert_eq!(next.len(), 16 << 10);
    let generation = manifest.contents().generation;
    manifest.add_segment(1, 1, true).expect("nothing to do");
    assert_eq!(again(&disk).contents().generation, generation);
}

#[test]
fn segments_are_listed_until_they_are_removed_and_their_stream_until_a_recovery_finds_no_file() {
    let (_folder, disk) = directory();
    let manifest = Manifest::new(&disk, [9; 16]);
    manifest.add_segment(1, 1, true).expect("written");
    assert_eq!(manifest.streams(), None, "no recovery has made a list");
    manifest.set_streams(std::collections::BTreeMap::new()).expect("written");
    for segment in 1..=3 {
        manifest.add_segment(1, segment, true).expect("written");
    }
    manifest.remove_segments(&[(1, 2)], 0).expect("written");
    let range = || again(&disk).streams().and_then(|streams| streams.get(&1).map(|record| (record.first, record.last)));
    assert_eq!(range(), Some((3, 3)));
    manifest.close_stream(1, 3, 8).expect("written");
    manifest.remove_segments(&[(1, 3)], 0).expect("written");
    assert_eq!(range(), Some((4, 3)), "a crash may leave the file");
    manifest.set_streams(std::collections::BTreeMap::new()).expect("written");
    assert_eq!(range(), None);
}

#[test]
fn a_file_has_one_of_two_states_while_it_is_replaced() {
    let (folder, disk) = directory();
    let path = folder.path().join("app.tar");
    let manifest = Manifest::new(&disk, [9; 16]);
    let check = || again(&disk).check_files();
    manifest.replace_file("app.tar", Some(b"one"), || std::fs::write(&path, "one")).expect("written");
    check().expect("as written");
    // It fails before the file is there, and after.
    let failed = || Err(std::io::Error::other("the power is off"));
    manifest.replace_file("app.tar", Some(b"two"), failed).expect_err("nothing was written");
    check().expect("as before");
    std::fs::write(&path, "two").expect("written");
    check().expect("as it was to be");
    std::fs::write(&path, "three").expect("written");
    assert!(matches!(check(), Err(ManifestError::FileChanged(path)) if path == "app.tar"));
    std::fs::write(&path, "two").expect("written");
    manifest.replace_file("app.tar", Some(b"four"), failed).expect_err("nothing was written");
    check().expect("what the failed replacement left");
    manifest.replace_file("app.tar", None, || std::fs::remove_file(&path)).expect("removed");
    check().expect("nothing is listed");
    assert!(manifest.contents().files.is_empty());
}

#[test]
fn what_is_missing_cut_or_older_is_refused_by_name() {
    let (folder, disk) = directory();
    let manifest = Manifest::new(&disk, [9; 16]);
    let path = folder.path().join("secret");
    manifest.replace_file("secret", Some(b"new"), || std::fs::write(&path, "new")).expect("written");
    std::fs::create_dir(folder.path().join("checkpoint")).expect("made");
    std::fs::write(folder.path().join("checkpoint/version"), "3").expect("written");
    let files = vec!["checkpoint/version".to_owned()];
    manifest.set_checkpoint(CheckpointRecord { mark: 5, files }).expect("written");
    manifest.check_files().expect("whole");
    std::fs::remove_file(folder.path().join("checkpoint/version")).expect("removed");
    assert!(matches!(manifest.check_files(), Err(ManifestError::FileMissing(path)) if path == "checkpoint/version"));
    for bad in ["ne", "old", ""] {
        std::fs::write(&path, bad).expect("written");
        assert!(matches!(manifest.check_files(), Err(ManifestError::FileChanged(path)) if path == "secret"));
    }
    std::fs::remove_file(&path).expect("removed");
    assert!(matches!(manifest.check_files(), Err(ManifestError::FileMissing(path)) if path == "secret"));
    assert!(matches!(manifest.check_checkpoint(4), Err(ManifestError::CheckpointOlder { has: 4, known: 5 })));
    manifest.check_checkpoint(5).expect("as new");
    std::fs::write(folder.path().join(MANIFEST_FILE), "").expect("cut");
    assert!(matches!(Manifest::open(&disk), Err(ManifestError::Unreadable(_))));
}

#[test]
fn fingerprints_tell_files_apart() {
    assert_ne!(fingerprint_of(b""), fingerprint_of(b"\0"));
}
