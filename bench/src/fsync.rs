//! The cost of one durable write on a disk at this moment. Every durability figure needs it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::fdatasync;

use crate::Outcome;
use crate::machine::median;

const WRITES: usize = 200;
const WRITE_BYTES: usize = 4096;
const FILE_BYTES: usize = 4 << 20;

/// Median microseconds of overwriting 4 KiB of an allocated file and `fdatasync`.
///
/// # Errors
/// If the folder cannot be written.
pub fn cost_us(folder: &Path) -> Outcome<f64> {
    let failed = |error: std::io::Error| format!("cannot probe the disk in {}: {error}", folder.display());
    let path = folder.join("fsync-probe");
    let file = File::create(&path).map_err(failed)?;
    // The file is written, not only reserved, because an overwrite must not allocate.
    file.write_all_at(&vec![1; FILE_BYTES], 0).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let mut costs = Vec::with_capacity(WRITES);
    for index in 0..WRITES {
        let block = [index as u8; WRITE_BYTES];
        let start = Instant::now();
        file.write_all_at(&block, (index * WRITE_BYTES % FILE_BYTES) as u64).map_err(failed)?;
        fdatasync(&file).map_err(|error| failed(error.into()))?;
        costs.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(median(&costs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        assert!(cost_us(folder.path()).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(cost_us(Path::new("/no/such/folder")).is_err());
    }
}
