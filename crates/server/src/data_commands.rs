//! Commands on a data directory that no node is using: inspect, repair; and `types`.

use std::path::Path;
use std::sync::Arc;

use millrace_base::{EntityKey, Lsn, ShardId};
use millrace_io::{Disk, RealClock, RealDisk, RealRandom};
use millrace_log::Environment;
use millrace_node::DataDirectory;
use millrace_store::{Checkpoint, FjallCheckpoint};

use crate::Failure;
use crate::cli::{InspectArgs, RepairArgs, TypesArgs};

/// Only the positions of the checkpoint are read.
const CACHE_BYTES: usize = 16 << 20;

/// An existing data directory; neither command may create one.
fn open(path: &Path) -> Result<(DataDirectory, Arc<dyn Disk>), Failure> {
    if !path.join("node.json").exists() {
        return Err(format!("{} is not a data directory (--data)", path.display()).into());
    }
    let directory = DataDirectory::open_unchecked(path, None)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(directory.path()));
    Ok((directory, disk))
}

fn checkpoint_lsns(directory: &DataDirectory) -> Result<Vec<Lsn>, Failure> {
    let checkpoint = FjallCheckpoint::open(&directory.path().join("checkpoint"), CACHE_BYTES)?;
    let lsns: Result<Vec<Lsn>, _> = (0..directory.shard_count()).map(|shard| checkpoint.lsn(ShardId(shard))).collect();
    Ok(lsns?)
}

/// Shows what the log holds.
///
/// # Errors
/// When the log cannot be read, or is damaged. A script sees damage by the exit code.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let (directory, disk) = open(&args.data)?;
    let report = millrace_log::inspect(&*disk, &mut |place, entry| {
        if !args.entries || args.shard.is_some_and(|shard| shard != place.shard.0) {
            return;
        }
        println!("{}:{} shard {} lsn {} time {}", place.file, place.offset, place.shard, place.lsn, entry.time.0);
        for write in &entry.writes {
            let entity = EntityKey::split_from(write.entity).map(|(key, _)| format!("{key:?}"));
            let field = String::from_utf8_lossy(write.field);
            let value =
                write.value.map(|value| String::from_utf8_lossy(value.get(1..).unwrap_or_default()).into_owned());
            println!("  {} {field} = {}", entity.unwrap_or_default(), value.unwrap_or_else(|| "(deleted)".to_owned()));
        }
    })?;
    println!("{}: {} shards", directory.path().display(), directory.shard_count());
    for stream in &report.streams {
        let end = if stream.is_closed { "closed" } else { "not closed" };
        println!("stream {} ({end})", stream.stream);
        for segment in &stream.segments {
            println!(
                "  {}  {} of {} bytes, {} batches, {} entries, {} shards",
                segment.file,
                segment.used_bytes,
                segment.file_bytes,
                segment.batches,
                segment.entries,
                segment.shards.len()
            );
        }
    }
    for (shard, lsn) in checkpoint_lsns(&directory)?.iter().enumerate().filter(|(_, lsn)| **lsn > Lsn::ZERO) {
        println!("shard {shard}: checkpoint at lsn {lsn}");
    }
    if report.damage.is_empty() {
        println!("no damage");
        return Ok(());
    }
    for damage in &report.damage {
        println!("damage: {damage}");
    }
    Err("the log is damaged: restore a backup, or see `millrace repair`".into())
}

/// Repairs the log if the caller accepts the loss. Otherwise it prints what a repair would lose.
///
/// # Errors
/// When nothing was repaired though something is damaged.
pub(crate) fn repair(args: &RepairArgs) -> Result<(), Failure> {
    let (mut directory, disk) = open(&args.data)?;
    let manifest = directory.manifest().clone();
    let lsns = checkpoint_lsns(&directory)?;
    let lsn_of = |shard: ShardId| lsns.get(usize::from(shard.0)).copied().unwrap_or_default();
    let environment = Environment { disk, clock: Arc::new(RealClock), random: Arc::new(RealRandom) };
    let report = millrace_log::repair(&environment, &manifest, &lsn_of, args.accept_loss)?;
    let refused = manifest.check_files().err();
    if args.accept_loss {
        directory.adopt()?;
    }
    if let Some(error) = &refused {
        println!("damage: {error}");
    } else if report.is_whole() {
        println!("the log is whole: there is nothing to repair");
        return Ok(());
    }
    for damage in &report.damage {
        println!("damage: {damage}");
    }
    for lost in &report.lost {
        println!("lost: shard {}, entries {} to {}", lost.shard, lost.first, lost.last);
    }
    if !report.damage.is_empty() {
        println!(
            "perhaps lost: what stood in the damaged places and was the last of its shard, as nothing later tells of it"
        );
    }
    if !args.accept_loss {
        return Err("nothing was changed; copy the data directory away, then run again with --accept-loss".into());
    }
    println!("kept {} entries; gave up {} that could be read", report.kept, report.given_up);
    for aside in &report.set_aside {
        println!("set aside: {aside}");
    }
    Ok(())
}

/// Writes the types of the programming model.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn types(args: &TypesArgs) -> Result<(), Failure> {
    let text = millrace_func_js::type_definitions();
    if args.out == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(&args.out, text).map_err(|error| format!("--out {}: {error}", args.out.display()))?;
    println!("wrote {}", args.out.display());
    Ok(())
}
