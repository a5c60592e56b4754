//! How often each thing happened that a run is about: a simulator in which no message is ever lost finds no
//! bug in what is done about that, and says nothing. The test of the seeds asks for some of each.

use std::fmt;

use crate::named::named;

named! {
    /// Something that may happen in a run.
    pub enum Thing {
        /// The clock is set forward by seconds.
        ClockForward = "clock set forward",
        /// The clock is set back by seconds.
        ClockBack = "clock set back",
        /// The clock jumps forward by hours.
        HoursForward = "clock hours forward",
        /// The clock is set back by hours.
        HoursBack = "clock hours back",
        /// A message about a transaction comes before one that was sent earlier.
        PeerOvertakes = "peer message overtakes",
        /// A message about a transaction comes twice.
        PeerDoubled = "peer message doubled",
        /// A message comes before what was sent earlier.
        DeliveryOvertakes = "delivery overtakes",
        /// A message comes twice.
        DeliveryDoubled = "delivery doubled",
        /// A message is lost on the way.
        DeliveryLost = "delivery lost",
        /// That messages have arrived comes before what was sent earlier.
        AcknowledgementOvertakes = "acknowledgement overtakes",
        /// That messages have arrived is lost on the way.
        AcknowledgementLost = "acknowledgement lost",
        /// A request is passed on to another core, or its reply comes back.
        RequestPassedOn = "request or reply passed on",
        /// One of them comes before what was sent earlier.
        RequestOvertakes = "request or reply overtakes",
        /// A request waits to be read, as many wait already.
        RequestLeftUnread = "request left unread",
        /// A request waits in the queue for longer than it may.
        RequestShed = "request refused for waiting",
        /// A chunk is written to the checkpoint.
        ChunkWritten = "chunk written",
        /// Rows are read beside the core for a request that waits.
        RowsRead = "rows read beside the core",
        /// A transaction over several shards is decided by its coordinator, in two phases.
        Decided = "decided in two phases",
        /// A transaction over several shards is committed by its only participant.
        Delegated = "committed by the participant",
        /// A transaction starts again because an older one holds what it wants.
        StartedAgain = "started again for an older one",
        /// The power goes.
        PowerCut = "power cut",
        /// The power goes while the node starts.
        PowerCutAtStart = "power cut at a start",
        /// The process is killed.
        Killed = "killed",
        /// The node is stopped cleanly.
        Stopped = "stopped cleanly",
        /// The log of a core failed.
        LogFailed = "log failed",
        /// A shard has stopped because its log failed.
        ShardStopped = "shard stopped",
        /// A shard fails alone: its memory is lost, and what was not durable.
        FailedAlone = "shard failed alone",
        /// An entry is lost with its shard.
        EntryLostAlone = "entry lost with its shard",
        /// A message between shards is lost with one of them.
        MessageLostAlone = "message lost with a shard",
        /// A shard that failed alone is opened again.
        OpenedAlone = "shard opened again",
        /// A batch finds the disk full.
        DiskFull = "disk full",
        /// An idempotency key is too old to be sent again.
        KeyExpired = "key expired",
        /// Another request comes under a key that was used before its retention.
        KeyUsedAgain = "key used again",
        /// A schedule is called.
        ScheduleCalled = "schedule called",
        /// A schedule is called once for several times that have passed.
        ScheduleFolded = "schedule called once for several times",
        /// A workflow is restarted from its beginning.
        Restarted = "workflow restarted",
        /// A workflow is restarted from a step.
        RestartedFromStep = "workflow restarted from a step",
        /// The connection to a worker is lost, or a request to it, or the answer.
        WorkerLost = "worker lost",
        /// A worker says nothing for so long that its attempts are voided.
        WorkerFellSilent = "worker fell silent",
        /// A worker has not answered when the handler's time is over.
        WorkerTooLate = "worker too late",
        /// No worker takes a request.
        WorkerAway = "no worker there",
        /// A frame of a worker comes twice, or a request.
        WorkerFrameDoubled = "worker's frame doubled",
        /// A frame comes of an attempt that was voided before.
        WorkerFrameVoid = "frame of a void attempt",
        /// A turn ends before its end.
        WorkerTurnCut = "worker's turn cut",
        /// An attempt is given up that has begun.
        AttemptGivenUp = "attempt given up",
        /// A bit flips in what a start had sealed of the log.
        BitFlipped = "bit flipped",
        /// The start after that refuses the log.
        DamageNoticed = "flipped bit noticed",
    }
}

impl Thing {
    /// Whether it happens only where handlers run in workers.
    #[must_use]
    pub fn is_of_workers(self) -> bool {
        matches!(
            self,
            Thing::WorkerLost
                | Thing::WorkerFellSilent
                | Thing::WorkerTooLate
                | Thing::WorkerAway
                | Thing::WorkerFrameDoubled
                | Thing::WorkerFrameVoid
                | Thing::WorkerTurnCut
                | Thing::AttemptGivenUp
        )
    }
}

/// How often each happened.
#[derive(Clone, Copy, Debug)]
pub struct Happened([u64; Thing::ALL.len()]);

impl Default for Happened {
    fn default() -> Self {
        Self([0; Thing::ALL.len()])
    }
}

impl Happened {
    pub fn note(&mut self, thing: Thing) {
        self.note_many(thing, 1);
    }

    pub fn note_many(&mut self, thing: Thing, times: u64) {
        self.0[thing as usize] += times;
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Notes each thing once that happened in a run.
    pub fn add_run(&mut self, run: &Self) {
        for (sum, times) in self.0.iter_mut().zip(run.0) {
            *sum += u64::from(times > 0);
        }
    }

    #[must_use]
    pub fn times(&self, thing: Thing) -> u64 {
        self.0[thing as usize]
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = Thing::ALL.iter().map(|thing| format!("{} {}", thing.name(), self.times(*thing)));
        formatter.write_str(&times.collect::<Vec<_>>().join(", "))
    }
}
