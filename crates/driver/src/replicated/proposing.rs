//! Entries of a shard that runs no functions: the node that owns it makes them.

use millrace_base::{Error, ErrorCode, Lsn, ShardId};
use millrace_format::{Entry, Write};
use millrace_replica::ShardLog;

use crate::core::Core;
use crate::platform::Platform;

impl<P: Platform> Core<P> {
    /// Writes rows of a shard that runs no functions. The entry is committed when `Platform::applied` says so. Gives its position.
    /// The times of such entries never go back, as those of a shard do not.
    ///
    /// # Errors
    /// [`ErrorCode::Overloaded`] while another node owns the shard.
    pub fn propose(&mut self, shard: ShardId, writes: &[Write]) -> Result<Lsn, Error> {
        let (now, monotonic_ms) = self.clocks();
        let open = self.seat(shard).filter(|seat| seat.options.is_none() && seat.serving.is_some());
        let seat = open.filter(|seat| seat.replica.is_serving()).ok_or_else(not_here)?;
        let lsn = seat.replica.log().last().lsn.next();
        let time = seat.clock.as_mut().map_or(now, |clock| clock.look(now, monotonic_ms));
        let mut bytes = Vec::new();
        Entry { shard, lsn, time, writes }.encode(&mut bytes);
        self.drive(shard, |seat, now_ns, out| seat.replica.submit(now_ns, lsn, bytes.into(), out));
        self.platform.wake();
        Ok(lsn)
    }
}

pub(super) fn not_here() -> Error {
    let message = "another node owns the shard, or is about to: try again after the time in Retry-After";
    Error::new(ErrorCode::Overloaded, message)
}
