//! What a start makes for objects: the bodies beside the log.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use millrace_base::limits;
use millrace_blobs::{Bodies, BodyOptions};
use millrace_io::{Clock, Disk, HeldDisk, RealClock};

use super::BodyStore;
use crate::directory::DataDirectory;
use crate::options::{Durability, NodeOptions};

/// Bodies of objects, in the data directory.
pub(crate) const BODIES: &str = "bodies";

/// The folders in it, and the file that counts ranges of numbers; `docs/internals/objects.md` has the names.
pub(crate) const BODY_FOLDERS: [&str; 2] = ["segments", "files"];
pub(crate) const BODY_START: &str = "start";

/// Bodies of objects, and the threads that read and write them.
pub(crate) type OpenBodies = (Option<Arc<BodyStore>>, Vec<JoinHandle<()>>);

/// Bodies of objects, where the node is to keep them or has.
pub(crate) fn open_bodies(options: &NodeOptions, directory: &DataDirectory) -> io::Result<OpenBodies> {
    let data = directory.disk("");
    if !options.keeps_objects && !data.exists(BODIES)? {
        return Ok((None, Vec::new()));
    }
    data.create_directory(BODIES)?;
    // No body is durable before the folder's own name is.
    data.sync_directory("")?;
    let disk = directory.disk(BODIES);
    let body_options = BodyOptions {
        lanes: options.cores,
        is_synced: options.durability == Durability::Fsync,
        reserve_bytes: limits::BODIES_RESERVE_BYTES.min(disk.capacity_bytes()? / 4),
        ranges_behind: ranges_behind(options, &*disk)?,
        ..BodyOptions::default()
    };
    let disk = HeldDisk::new(disk);
    let (bodies, recovered) = Bodies::open(Arc::clone(&disk) as Arc<dyn Disk>, body_options)
        .map_err(|error| io::Error::new(error.kind(), format!("{BODIES}: {error}")))?;
    // A folder that is gone must not look like one that never was there.
    let manifest = directory.manifest();
    manifest.expect_folders(&BODY_FOLDERS.map(|folder| format!("{BODIES}/{folder}")))?;
    if recovered.damaged > 0 {
        tracing::error!(
            files = recovered.damaged,
            "bodies of objects are damaged on the disk; reading them will say which"
        );
    }
    if recovered.bodies > 0 {
        tracing::info!(bodies = recovered.bodies, walked_segments = recovered.walked_segments, "bodies of objects");
    }
    let (store, threads) = BodyStore::start(Arc::new(bodies), disk, options.cores)?;
    Ok((Some(store), threads))
}

/// The minute before which no directory was emptied: 2026 begins.
const FIRST_MINUTE: u64 = 29_453_760;

/// Behind which range of numbers new ones are taken. Each node of a cluster has ranges of its own. A directory that has lost
/// the count of its ranges does not know how many it had taken. That was not one a minute.
fn ranges_behind(options: &NodeOptions, bodies: &dyn Disk) -> io::Result<u32> {
    const MINUTES: u64 = 0x00FF_FFFF;
    let minute = RealClock.now() / 60_000;
    let is_lost = DataDirectory::is_emptied(&options.data) || lacks_count(bodies)?;
    let lost = if is_lost { minute.saturating_sub(FIRST_MINUTE).min(MINUTES - 1) } else { 0 };
    let node = options.cluster.as_ref().map_or(0, |cluster| u32::from(cluster.node.0));
    Ok(node << 24 | u32::try_from(lost).unwrap_or(0))
}

/// Whether there are bodies, and no count of the ranges that their numbers are from.
fn lacks_count(bodies: &dyn Disk) -> io::Result<bool> {
    if bodies.exists(BODY_START)? {
        return Ok(false);
    }
    for folder in BODY_FOLDERS {
        if bodies.exists(folder)? && !bodies.list(folder)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
