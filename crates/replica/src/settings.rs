//! The numbers of the protocol, and the bugs that tests plant.

use millrace_base::limits::{APPEND_BYTES, APPEND_ENTRIES};

/// How a replica behaves. All replicas of a shard have the same lease and clock error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// From one round of heartbeats to the next.
    pub heartbeat_ns: u64,
    /// How long a lease lasts for its holder, from the start of the round that asked for it. 0: there are no leases, and each
    /// read is confirmed by a round.
    pub lease_ns: u64,
    /// How far a clock's rate may be off, in percent.
    pub clock_error_percent: u64,
    /// Bytes and entries that may be on their way to one replica.
    pub window: (usize, usize),
    /// Bytes and entries of one message. The first entry may be larger alone.
    pub message: (usize, usize),
    /// Bytes of entries that the owner keeps in memory for replicas that are a little behind.
    pub cache_bytes: usize,
    /// A replica that heard from an owner within this time would not promise another epoch by nomination.
    pub silence_ns: u64,
    /// Entries that a learner may lack of the committed ones when it is promoted.
    pub join_lag: u64,
    /// A bug for tests to find. Servers have none.
    pub planted: Option<Bug>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_ns: 100_000_000,
            lease_ns: 600_000_000,
            clock_error_percent: 1,
            window: (8 << 20, 8192),
            message: (APPEND_BYTES, APPEND_ENTRIES),
            cache_bytes: 16 << 20,
            silence_ns: 600_000_000,
            join_lag: 128,
            planted: None,
        }
    }
}

impl Settings {
    /// How long the granter of a lease waits, by its own clock: a holder whose clock is slow has then stopped, even if
    /// the granter's clock is fast.
    #[must_use]
    pub fn grant_ns(&self) -> u64 {
        let (fast, slow) =
            (100 + u128::from(self.clock_error_percent), 100 - u128::from(self.clock_error_percent.min(99)));
        u64::try_from((u128::from(self.lease_ns) * fast).div_ceil(slow)).unwrap_or(u64::MAX)
    }
}

/// Bugs that only tests plant, to see the checks find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A promise is not written.
    ForgetPromise,
    /// Entries are acknowledged when they arrive.
    AckBeforeDurable,
    /// A replica acknowledges all that it holds, equal to the owner's log or not.
    AckUnmatched,
    /// An entry of an earlier epoch is committed because a majority holds it.
    CommitOldEpoch,
    /// The round that is already on its way confirms a read.
    LateConfirmation,
    /// A lease runs from the receipt of its grant.
    LeaseFromReceipt,
    /// A promise does not wait for the lease that the promiser granted.
    PromiseWithinLease,
    /// The owner does not react to a replica that lacks entries.
    IgnoreLacks,
    /// An owner serves on after it has heard of a higher epoch.
    ServeDeposed,
    /// A candidate takes its own log, whatever the others hold.
    KeepOwnLog,
    /// A replica that may lack entries takes part at once.
    TakePartIncomplete,
    /// An owner leads without the promises of a majority.
    LeadAlone,
    /// An entry is committed only when all voters have it.
    WaitForAll,
    /// The owner acts before an entry of its epoch is committed.
    ServeBeforeStart,
}
