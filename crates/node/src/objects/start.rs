//! What a start makes for objects: the bodies beside the log.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use millrace_base::limits;
use millrace_blobs::{Bodies, BodyOptions};
use millrace_io::{Clock, Disk, HeldDisk, RealClock, RealDisk};

use super::BodyStore;
use crate::cluster::ClusterOptions;
use crate::directory::DataDirectory;
use crate::options::{Durability, NodeOptions};

/// Bodies of objects, in the data directory.
pub(crate) const BODIES: &str = "bodies";

/// Bodies of objects, and the threads that read and write them.
pub(crate) type OpenBodies = (Option<Arc<BodyStore>>, Vec<JoinHandle<()>>);

/// Bodies of objects, where the node is to keep them or has.
pub(crate) fn open_bodies(options: &NodeOptions) -> io::Result<OpenBodies> {
    let path = options.data.join(BODIES);
    if !options.keeps_objects && !path.exists() {
        return Ok((None, Vec::new()));
    }
    std::fs::create_dir_all(&path)?;
    // No body is durable before the folder's own name is.
    RealDisk::new(&options.data).sync_directory("")?;
    let disk = RealDisk::new(&path);
    let body_options = BodyOptions {
        lanes: options.cores,
        is_synced: options.durability == Durability::Fsync,
        reserve_bytes: limits::BODIES_RESERVE_BYTES.min(disk.capacity_bytes()? / 4),
        ranges_behind: options.cluster.as_ref().map_or(0, |cluster| ranges_behind(options, cluster)),
        ..BodyOptions::default()
    };
    let disk = HeldDisk::new(Arc::new(disk));
    let (bodies, recovered) = Bodies::open(Arc::clone(&disk) as Arc<dyn Disk>, body_options)
        .map_err(|error| io::Error::new(error.kind(), format!("{BODIES}: {error}")))?;
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

/// The minute before which no directory of a cluster was emptied: 2026 begins.
const FIRST_MINUTE: u64 = 29_453_760;

/// Behind which range a node of a cluster takes its numbers. Each node has ranges of its own. One that has lost its directory
/// does not know how many it had taken. That was not one a minute.
fn ranges_behind(options: &NodeOptions, cluster: &ClusterOptions) -> u32 {
    const MINUTES: u64 = 0x00FF_FFFF;
    let minute = RealClock.now() / 60_000;
    let is_emptied = DataDirectory::is_emptied(&options.data);
    let lost = if is_emptied { minute.saturating_sub(FIRST_MINUTE).min(MINUTES - 1) } else { 0 };
    u32::from(cluster.node.0) << 24 | u32::try_from(lost).unwrap_or(0)
}
