//! Prints how fast this machine encodes, appends and replays: `cargo run --release -p millrace-log --example
//! log_speed`. Run it several times, because a disk's fsync has fast and slow phases.

use std::error::Error;
use std::sync::Arc;

use millrace_base::{EntityKey, Lsn, Name, ShardId, UnixMillis, Value, ValueKind};
use millrace_format::{Entry, Write};
use millrace_io::{Clock, Disk, RealClock, RealDisk, RealRandom};
use millrace_log::{Batch, Durability, Environment, Segments, Writer, WriterOptions, recover};
use millrace_manifest::Manifest;

const SHARDS: u16 = 32;
const ENTRIES: u64 = 2_000_000;

struct Run {
    directory: tempfile::TempDir,
    disk: Arc<dyn Disk>,
    manifest: Manifest,
}

impl Run {
    fn new() -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir()?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(directory.path()));
        let manifest = Manifest::new(&disk, [0; 16]);
        Ok(Self { directory, disk, manifest })
    }

    fn writer(&self, durability: Durability) -> Result<Writer, Box<dyn Error>> {
        let environment =
            Environment { disk: Arc::clone(&self.disk), clock: Arc::new(RealClock), random: Arc::new(RealRandom) };
        let options = WriterOptions { durability, ..WriterOptions::default() };
        Ok(Writer::open(environment, Segments::new(Arc::clone(&self.disk), self.manifest.clone()), options)?)
    }
}

fn seconds_since(begin_ns: u64) -> f64 {
    (RealClock.monotonic_ns() - begin_ns) as f64 / 1e9
}

fn writes(value_bytes: usize) -> Result<[Write; 1], Box<dyn Error>> {
    let name = |text| Name::new(text).map_err(|_| "a name");
    let entity = EntityKey::new(&name("bank")?, &name("account")?, b"account-1234567");
    let value = Some(Value::new(ValueKind::Bytes, &vec![7; value_bytes]));
    Ok([Write { entity, field: (*b"balance").into(), value }])
}

/// Appends `entries` small entries in batches of `per_batch` and prints what it took.
fn append(durability: Durability, entries: u64, per_batch: u64, value_bytes: usize) -> Result<Run, Box<dyn Error>> {
    let run = Run::new()?;
    let mut writer = run.writer(durability)?;
    writer.job().into_iter().for_each(millrace_log::Job::run);
    let writes = writes(value_bytes)?;
    let mut batch = Batch::new();
    let (mut bytes, mut sync_us, mut batches, mut encode_s, mut append_s) = (0, 0, 0u64, 0.0, 0.0);
    for first in (0..entries).step_by(per_batch as usize) {
        let begin_ns = RealClock.monotonic_ns();
        for number in first..(first + per_batch).min(entries) {
            let shard = ShardId((number % u64::from(SHARDS)) as u16);
            let lsn = Lsn(number / u64::from(SHARDS) + 1);
            batch.push(&Entry { shard, lsn, time: UnixMillis(number), writes: &writes });
        }
        encode_s += seconds_since(begin_ns);
        let begin_ns = RealClock.monotonic_ns();
        let report = writer.append(&mut batch)?;
        append_s += seconds_since(begin_ns);
        bytes += report.bytes;
        sync_us += report.sync_us;
        batches += 1;
        // Outside the measured time, as on the committer's helper thread.
        writer.job().into_iter().for_each(millrace_log::Job::run);
    }
    writer.close()?;
    println!(
        "append {durability:?}: {entries} entries, {per_batch} a batch: {:.0} ns an entry to encode, {:.0} MB/s, \
         {:.0} us a batch, of which fsync {:.0}",
        encode_s * 1e9 / entries as f64,
        bytes as f64 / 1e6 / append_s,
        append_s * 1e6 / batches as f64,
        sync_us as f64 / batches as f64,
    );
    Ok(run)
}

fn main() -> Result<(), Box<dyn Error>> {
    append(Durability::Fsync, 20_000, 10, 16)?;
    append(Durability::Fsync, 200_000, 200, 16)?;
    append(Durability::Fsync, 400_000, 10_000, 16)?;
    let run = append(Durability::Os, ENTRIES, 1000, 16)?;
    for _ in 0..3 {
        let mut write_count = 0;
        let begin_ns = RealClock.monotonic_ns();
        let recovered =
            recover(&run.disk, &run.manifest, &|_| Lsn::ZERO, &mut |entry| write_count += entry.writes.len())?;
        let seconds = seconds_since(begin_ns);
        println!(
            "replay: {} entries, {write_count} writes: {:.2} million a second, {:.0} MB/s",
            recovered.applied,
            recovered.applied as f64 / 1e6 / seconds,
            recovered.bytes as f64 / 1e6 / seconds,
        );
    }
    let empty = Run::new()?;
    let begin_ns = RealClock.monotonic_ns();
    recover(&empty.disk, &empty.manifest, &|_| Lsn::ZERO, &mut |_| {})?;
    empty.writer(Durability::Fsync)?;
    println!("an empty log is ready after {:.1} ms", seconds_since(begin_ns) * 1e3);
    drop(empty.directory);
    Ok(())
}
