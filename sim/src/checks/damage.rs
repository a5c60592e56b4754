//! A flipped bit in the log is noticed or makes no difference. Nothing acknowledged is ever dropped in silence.
//!
//! The check leaves out the newest run's streams. A decayed last batch of a log that was not closed looks like a
//! batch that was never finished. The last start sealed everything before, so there is no such doubt about it.

use std::collections::BTreeMap;

use millrace_base::{Lsn, ShardId};

use crate::happened::{Happened, Thing};
use crate::node::{Machine, StartError};
use crate::random::Rng;

/// Flips tried in each run.
const FLIPS: usize = 6;

fn recovered(machine: &Machine) -> Result<BTreeMap<ShardId, Lsn>, StartError> {
    let (stores, ..) = machine.recover_stores()?;
    Ok(stores.into_iter().map(|(shard, store)| (shard, store.lsn())).collect())
}

/// Flips bits in copies of the machine's log and recovers each.
///
/// # Errors
/// When a flip made entries vanish; the error names them.
pub fn check(machine: &Machine, rng: &mut Rng, happened: &mut Happened) -> Result<(), String> {
    let copy = |seed: u64| Machine { disk: machine.disk.durable_copy(seed), ..machine.clone() };
    let whole = recovered(&copy(1)).map_err(|error| format!("the log is refused as it is: {error:?}"))?;
    let files = machine.disk.files("log");
    let newest = files.iter().map(|(path, _)| stream_of(path).to_owned()).max().unwrap_or_default();
    let runs: Vec<_> = files.into_iter().filter(|(path, _)| is_sealed(path, &newest, machine)).collect();
    for _ in 0..FLIPS {
        let Some((path, bytes)) = runs.get(rng.index(runs.len().max(1))) else {
            return Ok(());
        };
        // The beginning of a block is chosen more often than its middle, because headers are there.
        let byte = rng.index(*bytes);
        let byte = if rng.chance(1, 2) { byte / 4096 * 4096 + rng.index(128) } else { byte };
        let bit = byte.min(bytes - 1) * 8 + rng.index(8);
        let damaged = copy(rng.draw());
        damaged.disk.flip_bit(path, bit);
        happened.note(Thing::BitFlipped);
        match recovered(&damaged) {
            Ok(found) if found == whole => {}
            Ok(found) => {
                return Err(format!(
                    "damage is never dropped in silence: bit {bit} of {path} flipped, {whole:?} became {found:?}"
                ));
            }
            Err(StartError::Log(_)) => happened.note(Thing::DamageNoticed),
            Err(error) => return Err(format!("bit {bit} of {path} flipped, and the store is blamed: {error:?}")),
        }
    }
    Ok(())
}

fn stream_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// Whether a file belongs to a stream of an earlier run, which the last start has sealed.
fn is_sealed(path: &str, newest: &str, machine: &Machine) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    // A run makes one stream a core, and has no more cores than shards.
    number(stream_of(path)) + u64::from(machine.shard_count) <= number(newest) && path.ends_with(".log")
}
