//! What the front counts. Each core writes its own numbers without locks or read-modify-writes
//! (see `millrace_base::metric`); a scrape adds up all cores.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_base::metric::{Counter, Gauge, Histogram, HistogramSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use rustix::time::{ClockId, clock_gettime};

use crate::operations::Kind;

/// Why a connection was closed, or a request given up, for taking too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    Idle,
    Headers,
    Body,
    Write,
    Handshake,
}

impl Timeout {
    const ALL: [(Timeout, &'static str); 5] = [
        (Timeout::Idle, "idle"),
        (Timeout::Headers, "headers"),
        (Timeout::Body, "body"),
        (Timeout::Write, "write"),
        (Timeout::Handshake, "handshake"),
    ];
}

/// Statuses are counted by their first digit; 1xx are not sent.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// One kind of operation.
#[derive(Default)]
struct OperationMetrics {
    /// From a request's headers to its reply's, in nanoseconds.
    duration: Histogram,
    classes: [Counter; CLASSES.len()],
}

/// One core's numbers.
pub(crate) struct CoreMetrics {
    operations: [OperationMetrics; Kind::COUNT],
    pub(crate) connections_open: Gauge,
    pub(crate) connections: Counter,
    pub(crate) connections_shed: Counter,
    pub(crate) connection_errors: Counter,
    pub(crate) accept_failures: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    timeouts: [Counter; Timeout::ALL.len()],
    pub(crate) event_streams: Gauge,
}

impl Default for CoreMetrics {
    fn default() -> Self {
        Self {
            operations: std::array::from_fn(|_| OperationMetrics::default()),
            connections_open: Gauge::default(),
            connections: Counter::default(),
            connections_shed: Counter::default(),
            connection_errors: Counter::default(),
            accept_failures: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            timeouts: std::array::from_fn(|_| Counter::default()),
            event_streams: Gauge::default(),
        }
    }
}

/// Nanoseconds of a clock that never goes back. Straight from the system: every request reads it twice, and
/// `Instant` costs thrice as much.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl CoreMetrics {
    #[inline]
    pub(crate) fn count_request(&self, kind: Kind, status: u16, nanoseconds: u64) {
        let operation = &self.operations[kind.index()];
        operation.duration.record(nanoseconds);
        let class = usize::from(status / 100).clamp(2, 5) - 2;
        operation.classes[class].increment();
    }

    pub(crate) fn count_timeout(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].increment();
    }
}

/// All cores' numbers, as a collector of the registry.
#[derive(Default)]
pub(crate) struct FrontMetrics {
    cores: Mutex<Vec<Arc<CoreMetrics>>>,
}

impl fmt::Debug for FrontMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FrontMetrics")
    }
}

impl FrontMetrics {
    pub(crate) fn add_core(&self) -> Arc<CoreMetrics> {
        let metrics = Arc::new(CoreMetrics::default());
        self.cores.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        metrics
    }

    fn encode_operations(&self, encoder: &mut DescriptorEncoder<'_>, cores: &[Arc<CoreMetrics>]) -> fmt::Result {
        let mut durations = encoder.encode_descriptor(
            "millrace_http_request_duration",
            "Time from a request's headers to its reply's headers",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for kind in Kind::all() {
            let mut snapshot = HistogramSnapshot::default();
            cores.iter().for_each(|core| core.operations[kind.index()].duration.add_to(&mut snapshot));
            if snapshot.count() == 0 {
                continue;
            }
            let sum_seconds = snapshot.sum() as f64 / 1e9;
            durations.encode_family(&[("operation", kind.as_str())])?.encode_histogram::<NoLabelSet>(
                sum_seconds,
                snapshot.count(),
                &snapshot.exported_seconds(),
                None,
            )?;
        }
        let mut requests =
            encoder.encode_descriptor("millrace_http_requests", "Requests answered", None, MetricType::Counter)?;
        for kind in Kind::all() {
            for (index, class) in CLASSES.iter().enumerate() {
                let count: u64 = cores.iter().map(|core| core.operations[kind.index()].classes[index].get()).sum();
                if count > 0 {
                    requests
                        .encode_family(&[("operation", kind.as_str()), ("status", class)])?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        Ok(())
    }

    fn encode_connections(&self, encoder: &mut DescriptorEncoder<'_>, cores: &[Arc<CoreMetrics>]) -> fmt::Result {
        let sum = |read: fn(&CoreMetrics) -> u64| cores.iter().map(|core| read(core)).sum::<u64>();
        encoder
            .encode_descriptor("millrace_http_connections_open", "Open connections", None, MetricType::Gauge)?
            .encode_gauge(&i64::try_from(sum(|core| core.connections_open.get())).unwrap_or(i64::MAX))?;
        encoder
            .encode_descriptor(
                "millrace_http_event_streams",
                "Readers of changes being served",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&i64::try_from(sum(|core| core.event_streams.get())).unwrap_or(i64::MAX))?;
        type Row = (&'static str, &'static str, fn(&CoreMetrics) -> u64);
        let counters: [Row; 6] = [
            ("millrace_http_connections", "Connections accepted", |core| core.connections.get()),
            ("millrace_http_connections_shed", "Connections closed at once for lack of room", |core| {
                core.connections_shed.get()
            }),
            ("millrace_http_connection_errors", "Connections ended by malformed or broken traffic", |core| {
                core.connection_errors.get()
            }),
            ("millrace_http_accept_failures", "Failed accepts", |core| core.accept_failures.get()),
            ("millrace_http_received_bytes", "Bytes received, after decryption", |core| core.received_bytes.get()),
            ("millrace_http_sent_bytes", "Bytes sent, before encryption", |core| core.sent_bytes.get()),
        ];
        for (name, help, read) in counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&sum(read), None)?;
        }
        let help = "Connections closed or requests given up for taking too long";
        let mut timeouts = encoder.encode_descriptor("millrace_http_timeouts", help, None, MetricType::Counter)?;
        for (timeout, name) in Timeout::ALL {
            let count: u64 = cores.iter().map(|core| core.timeouts[timeout as usize].get()).sum();
            timeouts.encode_family(&[("phase", name)])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}

impl Collector for FrontMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cores = self.cores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.encode_operations(&mut encoder, &cores)?;
        self.encode_connections(&mut encoder, &cores)
    }
}
