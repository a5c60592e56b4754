//! The simulated disk: what survives a crash is what was synced, and nothing that was never written.

use super::*;

fn disk_with_file(content: &[u8]) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new(1);
    disk.create_directory("d").expect("made");
    disk.sync_directory("").expect("synced");
    let file = disk.create("d/f").expect("made");
    file.write_at(content, 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_directory("d").expect("synced");
    (disk, file)
}

fn content(disk: &SimDisk, path: &str) -> Vec<u8> {
    let file = disk.open(path).expect("there");
    let mut bytes = vec![0; usize::try_from(file.length().expect("known")).expect("small")];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

#[test]
fn what_was_synced_survives_and_what_was_not_survives_in_any_part() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (disk, file) = disk_with_file(&[1; 2 * SECTOR]);
        disk.state().rng = Rng::new(seed);
        file.write_at(&[2; 2 * SECTOR], 0).expect("written");
        assert_eq!(content(&disk, "d/f"), [2; 2 * SECTOR]);
        disk.power_cut();
        let bytes = content(&disk, "d/f");
        for sector in bytes.chunks(SECTOR) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is written as a whole");
        }
        seen.insert((bytes[0], bytes[SECTOR]));
        assert!(file.write_at(b"x", 0).is_err(), "the process is gone");
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn names_need_their_directory_synced() {
    let mut invocation_results = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (disk, _) = disk_with_file(b"old");
        disk.state().rng = Rng::new(seed);
        disk.create("d/g").expect("made").sync_data().expect("synced");
        disk.rename("d/f", "d/h").expect("renamed");
        disk.power_cut();
        let names: Vec<String> = disk.list("d").expect("there").into_iter().map(|entry| entry.name).collect();
        invocation_results.insert(names.join(" "));
    }
    assert_eq!(invocation_results.into_iter().collect::<Vec<_>>(), ["f", "f g", "g h"]);
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let (disk, file) = disk_with_file(b"one");
    file.write_at(b"two", 0).expect("written");
    disk.kill();
    assert_eq!(content(&disk, "d/f"), b"two");
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next_one() {
    let mut was_lost = false;
    for seed in 0..50 {
        let (disk, file) = disk_with_file(&[1; 4 * SECTOR]);
        disk.state().rng = Rng::new(seed);
        disk.set_faults(Faults { fail_sync_at: Some(1), ..Faults::default() });
        file.write_at(&[2; 4 * SECTOR], 0).expect("written");
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
        assert_eq!(content(&disk, "d/f"), [2; 4 * SECTOR], "readers see it");
        disk.power_cut();
        was_lost |= content(&disk, "d/f").contains(&1);
    }
    assert!(was_lost);
}

#[test]
fn the_last_operation_before_a_crash_answers_nobody() {
    let (disk, file) = disk_with_file(b"one");
    disk.set_faults(Faults { crash_at: Some(2), ..Faults::default() });
    file.write_at(b"two", 0).expect("before");
    assert!(file.sync_data().is_err());
    assert!(disk.has_crashed() && file.write_at(b"six", 0).is_err() && disk.list("d").is_err());
    disk.power_cut();
    assert!(disk.list("d").is_ok());
}

#[test]
fn a_full_disk_refuses_growth_but_not_allocated_bytes() {
    let (disk, file) = disk_with_file(&[1; 100]);
    disk.set_faults(Faults { capacity_bytes: Some(150), ..Faults::default() });
    assert!(millrace_io::is_out_of_space(&file.allocate(0, 151).expect_err("full")));
    assert!(file.write_at(&[2; 100], 0).is_ok());
    assert!(file.write_at(&[2; 51], 100).is_err());
    assert_eq!(disk.available_bytes().expect("known"), 50);
    disk.change_faults(|faults| faults.is_copy_on_write = true);
    assert!(file.write_at(&[2; 100], 0).is_err());
}
