//! Every committed seed goes through its target, and every target is everywhere where it has to be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millrace_fuzz_targets::TARGETS;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the fuzz folder").to_owned()
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn every_seed_passes_its_target() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let folder = fuzz_folder().join("seeds").join(name);
        let seeds = names_in(&folder);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let bytes = fs::read(folder.join(&seed)).expect("a seed");
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                failed.push(format!("{name}/{seed}"));
            }
        }
    }
    assert!(failed.is_empty(), "what the targets found is above: {failed:?}");
}

#[test]
fn every_target_has_a_binary_seeds_and_a_row() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&fuzz_folder().join("seeds")), targets);
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).expect("the manifest");
    let binaries = manifest.split("[[bin]]").skip(1).filter_map(|part| part.split('"').nth(1)).map(str::to_owned);
    assert_eq!(binaries.collect::<BTreeSet<_>>(), targets);
    let files = names_in(&fuzz_folder().join("targets/src"));
    let modules = files.iter().filter_map(|file| file.strip_suffix(".rs")).filter(|name| *name != "lib");
    assert_eq!(modules.map(str::to_owned).collect::<BTreeSet<_>>(), targets);
    let readme = fs::read_to_string(fuzz_folder().join("README.md")).expect("the table");
    let last_cells = readme.lines().filter_map(|line| line.strip_suffix('|')?.rsplit('|').next());
    let named = last_cells.filter_map(|cell| cell.split('`').nth(1)).map(str::to_owned);
    assert_eq!(named.collect::<BTreeSet<_>>(), targets);
}
