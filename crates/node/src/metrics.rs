//! What a node counts, and how Prometheus gets it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_base::metric::{Counter, Gauge, Histogram, HistogramSnapshot};
use millrace_driver::CoreMetrics;
use millrace_shard::WORKFLOW_ENDS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::cluster::ReplicationMetrics;
use crate::failure_log::FailureLog;

/// The node's numbers, summed over its cores at each scrape. Register it with a Prometheus registry.
#[derive(Clone, Debug)]
pub struct NodeMetrics {
    pub(crate) cores: Vec<Arc<CoreMetrics>>,
    pub(crate) handlers: HandlerMetrics,
    pub(crate) replication: Arc<ReplicationMetrics>,
}

/// One core's histogram of a handler's or route's latency in nanoseconds, and how many failed.
#[derive(Debug)]
pub(crate) struct HandlerMetric {
    pub latency_ns: Histogram,
    pub errors: Counter,
    pub failures: FailureLog,
}

impl HandlerMetric {
    fn new(name: HandlerName) -> Self {
        Self { latency_ns: Histogram::default(), errors: Counter::default(), failures: FailureLog::new(name) }
    }
}

/// App, service, and handler or route.
pub(crate) type HandlerName = [String; 3];
type PerCore = Vec<Arc<HandlerMetric>>;

/// Latencies by app, service and handler (or route). The lock is taken when an app is loaded and
/// at a scrape, never by a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandlerMetrics {
    by_name: Arc<Mutex<BTreeMap<HandlerName, PerCore>>>,
}

impl HandlerMetrics {
    /// The numbers of one handler on one more core. Loading a new version goes on with the old
    /// numbers of that core, so that a deployment resets nothing.
    pub(crate) fn of(&self, core: usize, cores: usize, name: [String; 3]) -> Arc<HandlerMetric> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let metric = |name: &HandlerName| Arc::new(HandlerMetric::new(name.clone()));
        let metrics = by_name.entry(name.clone()).or_insert_with(|| (0..cores).map(|_| metric(&name)).collect());
        Arc::clone(&metrics[core])
    }

    /// Forgets the numbers of handlers that no loaded version has on any core. Who deploys ever new names would fill the
    /// memory with them; one that is deployed anew later begins at zero, as after a restart.
    pub(crate) fn forget_unused(&self) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.retain(|_, cores| cores.iter().any(|metric| Arc::strong_count(metric) > 1));
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let help = "Time from a call's arrival at the node to its reply";
        let mut family = encoder.encode_descriptor("millrace_handler_seconds", help, None, MetricType::Histogram)?;
        for ([app, service, handler], cores) in by_name.iter() {
            let mut snapshot = HistogramSnapshot::default();
            cores.iter().for_each(|core| core.latency_ns.add_to(&mut snapshot));
            if snapshot.count() > 0 {
                let labels = [("app", app.as_str()), ("service", service), ("handler", handler)];
                encode_snapshot(&mut family.encode_family(&labels)?, &snapshot, 1e9)?;
            }
        }
        let help = "Calls that were answered with an error";
        let mut family = encoder.encode_descriptor("millrace_handler_errors", help, None, MetricType::Counter)?;
        for ([app, service, handler], cores) in by_name.iter() {
            let labels = [("app", app.as_str()), ("service", service), ("handler", handler)];
            let errors: u64 = cores.iter().map(|core| core.errors.get()).sum();
            if errors > 0 {
                ConstCounter::new(errors).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

const LOWEST_POWER: u32 = 0;
const HIGHEST_POWER: u32 = 36;

fn encode_snapshot(
    metric: &mut MetricEncoder<'_>,
    snapshot: &HistogramSnapshot,
    unit: f64,
) -> Result<(), std::fmt::Error> {
    // The same bounds at every scrape: every power of two up to a minute in nanoseconds, which also
    // serves for sizes. The encoder adds the buckets up itself.
    let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(HIGHEST_POWER as usize);
    let mut rest = snapshot.buckets().peekable();
    for power in LOWEST_POWER..=HIGHEST_POWER {
        let bound = 1u64 << power;
        let mut count = 0;
        while let Some((_, more)) = rest.next_if(|(upper, _)| *upper < bound) {
            count += more;
        }
        buckets.push((bound as f64 / unit, count));
    }
    buckets.push((f64::MAX, rest.map(|(_, count)| count).sum()));
    metric.encode_histogram::<NoLabelSet>(snapshot.sum() as f64 / unit, snapshot.count(), &buckets, None)
}

impl NodeMetrics {
    /// Numbers of a node with so many cores, all zero until the node starts with them.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores).map(|_| Arc::default()).collect(),
            handlers: HandlerMetrics::default(),
            replication: Arc::default(),
        }
    }
}

type CounterRow = (&'static str, &'static str, fn(&CoreMetrics) -> &Counter);
type GaugeRow = (&'static str, &'static str, fn(&CoreMetrics) -> &Gauge);
type HistogramRow = (&'static str, &'static str, fn(&CoreMetrics) -> &Histogram, f64);

const COUNTERS: [CounterRow; 17] = [
    ("millrace_log_entries", "Entries appended to the log", |core| &core.entries),
    ("millrace_log_batches", "Batches made durable", |core| &core.batches),
    ("millrace_log_bytes", "Bytes written to the log", |core| &core.log_bytes),
    ("millrace_checkpoint_bytes", "Bytes of rows written to the checkpoint", |core| &core.checkpointed_bytes),
    ("millrace_requests_shed", "Requests refused because others waited too long", |core| &core.shed),
    ("millrace_detours", "Messages about transactions that went through a third node", |core| &core.detours),
    ("millrace_requests_passed_on", "Requests passed to the core of their shard", |core| &core.passed_on),
    ("millrace_shards_opened", "Shards that this node has begun to serve", |core| &core.shards_opened),
    ("millrace_shards_received", "Shards that a living node has handed to this one", |core| &core.shards_received),
    ("millrace_shards_given_up", "Shards that this node served and serves no more", |core| &core.shards_given_up),
    ("millrace_catch_ups", "Reads of the log for replicas that lack more than memory holds", |core| &core.catch_ups),
    (
        "millrace_transaction_restarts",
        "Transactions started again because an older one held what they wanted",
        |core| &core.transaction_restarts,
    ),
    ("millrace_failed_attempts", "Attempts to run messages and compensations that failed", |core| {
        &core.failed_attempts
    }),
    ("millrace_limit_kills_cpu", "Calls ended by their CPU limit", |core| &core.cpu_kills),
    ("millrace_limit_kills_memory", "Calls ended by their memory limit", |core| &core.memory_kills),
    ("millrace_limit_kills_stack", "Calls ended by their stack limit", |core| &core.stack_kills),
    ("millrace_limit_kills_other", "Calls ended by any other limit", |core| &core.other_kills),
];

const GAUGES: [GaugeRow; 14] = [
    ("millrace_resident_bytes", "Memory held for entities", |core| &core.resident_bytes),
    ("millrace_resident_entities", "Entities in memory", |core| &core.resident_entities),
    ("millrace_dirty_bytes", "Memory of entities not checkpointed yet", |core| &core.dirty_bytes),
    ("millrace_queued_requests", "Requests that wait for their core", |core| &core.queued_requests),
    ("millrace_open_requests", "Requests not answered yet", |core| &core.open_requests),
    ("millrace_waiting_transactions", "Transactions that wait in the middle", |core| &core.waiting_transactions),
    ("millrace_locked_entities", "Entities held or waited for by transactions", |core| &core.locked_entities),
    (
        "millrace_unfinished_commits",
        "Transactions over several shards prepared or decided and not yet ended in all of them",
        |core| &core.unfinished_commits,
    ),
    ("millrace_workflows", "Workflows that have begun and not ended", |core| &core.workflows),
    ("millrace_pending_workflows", "Workflows that have yet to begin", |core| &core.pending_workflows),
    ("millrace_paused_workflows", "Workflows that failed too often and wait for somebody", |core| {
        &core.paused_workflows
    }),
    ("millrace_failing_messages", "Messages that failed and are tried again", |core| &core.failing_messages),
    ("millrace_dead_letters", "Messages and compensations that failed too often", |core| &core.dead_letters),
    ("millrace_stopped_shards", "Shards that stopped for good and need a restart", |core| &core.stopped_shards),
];

const HISTOGRAMS: [HistogramRow; 2] = [
    ("millrace_fsync_seconds", "Time of one fdatasync", |core| &core.fsync_ns, 1e9),
    ("millrace_group_size", "Entries in one batch", |core| &core.group_size, 1.0),
];

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, of) in COUNTERS {
            let sum: u64 = self.cores.iter().map(|core| of(core).get()).sum();
            let metric = ConstCounter::new(sum);
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let (name, help) = ("millrace_workflows_ended", "Workflows that have ended, by how");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (index, status) in WORKFLOW_ENDS.into_iter().enumerate() {
            let sum: u64 = self.cores.iter().map(|core| core.workflows_ended[index].get()).sum();
            ConstCounter::new(sum).encode(family.encode_family(&[("status", status)])?)?;
        }
        for (name, help, of) in GAUGES {
            let sum: u64 = self.cores.iter().map(|core| of(core).get()).sum();
            let metric = ConstGauge::new(i64::try_from(sum).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let (name, help) =
            ("millrace_shard_clock_lead_seconds", "How far a shard's time is ahead of the machine's clock");
        let lead_ms = self.cores.iter().map(|core| core.clock_lead_ms.get()).max().unwrap_or(0);
        let metric = ConstGauge::new(lead_ms as f64 / 1e3);
        metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        for (name, help, of, unit) in HISTOGRAMS {
            let mut snapshot = HistogramSnapshot::default();
            for core in &self.cores {
                of(core).add_to(&mut snapshot);
            }
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            encode_snapshot(&mut metric, &snapshot, unit)?;
        }
        self.replication.encode(&mut encoder)?;
        self.handlers.encode(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_handlers_go_with_the_last_version_that_has_them_on_any_core() {
        let metrics = HandlerMetrics::default();
        let name = |handler: &str| ["app".to_owned(), "service".to_owned(), handler.to_owned()];
        let count = || metrics.by_name.lock().expect("no panic").len();
        let mut first: Vec<_> = (0..2).map(|core| metrics.of(core, 2, name("old"))).collect();
        first[0].errors.increment();
        let second: Vec<_> = (0..2).map(|core| metrics.of(core, 2, name("new"))).collect();
        let again = metrics.of(0, 2, name("old"));
        assert_eq!(again.errors.get(), 1, "a deployment resets nothing");
        drop(again);
        first.remove(0);
        metrics.forget_unused();
        assert_eq!(count(), 2, "one core still has it");
        drop(first);
        metrics.forget_unused();
        assert_eq!(count(), 1);
        drop(second);
        metrics.forget_unused();
        assert_eq!(count(), 0);
    }
}
