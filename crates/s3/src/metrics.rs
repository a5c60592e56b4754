//! What the front counts. Each core writes its own numbers without locks; a scrape adds up all cores.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use millrace_base::metric::{Counter, Gauge, Histogram, HistogramSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::route::Action;

/// What a request did, as far as metrics tell requests apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Head,
    Put,
    Copy,
    List,
    Delete,
    Upload,
    /// Settings, tags, locks, and what was refused before it was known what it is.
    #[default]
    Other,
}

const KINDS: [(Kind, &str); 8] = [
    (Kind::Get, "get"),
    (Kind::Head, "head"),
    (Kind::Put, "put"),
    (Kind::Copy, "copy"),
    (Kind::List, "list"),
    (Kind::Delete, "delete"),
    (Kind::Upload, "upload"),
    (Kind::Other, "other"),
];

impl From<Action> for Kind {
    fn from(action: Action) -> Self {
        match action {
            Action::GetObject => Self::Get,
            Action::HeadObject => Self::Head,
            Action::PutObject | Action::PostForm | Action::UploadPart => Self::Put,
            Action::CopyObject | Action::UploadPartCopy => Self::Copy,
            Action::ListBuckets
            | Action::ListObjects
            | Action::ListObjectsV2
            | Action::ListVersions
            | Action::ListUploads
            | Action::ListParts => Self::List,
            Action::DeleteObject | Action::DeleteObjects => Self::Delete,
            Action::CreateUpload | Action::CompleteUpload | Action::AbortUpload => Self::Upload,
            _ => Self::Other,
        }
    }
}

/// Statuses are counted by their first digit.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

#[derive(Default)]
struct KindMetrics {
    /// From a request's headers to its reply's, in nanoseconds.
    duration: Histogram,
    classes: [Counter; CLASSES.len()],
}

/// One core's numbers.
#[derive(Default)]
pub(crate) struct CoreMetrics {
    kinds: [KindMetrics; KINDS.len()],
    pub(crate) connections_open: Gauge,
    pub(crate) connections: Counter,
    pub(crate) connections_shed: Counter,
    pub(crate) connection_errors: Counter,
    pub(crate) accept_failures: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
}

impl CoreMetrics {
    pub(crate) fn count_request(&self, kind: Kind, status: u16, began: Instant) {
        let counted = &self.kinds[kind as usize];
        counted.duration.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        counted.classes[usize::from(status / 100).clamp(2, 5) - 2].increment();
    }
}

/// All cores' numbers, as a collector of a registry.
#[derive(Default)]
pub struct Metrics {
    cores: Mutex<Vec<Arc<CoreMetrics>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Metrics {
    pub(crate) fn add_core(&self) -> Arc<CoreMetrics> {
        let metrics = Arc::new(CoreMetrics::default());
        self.cores.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        metrics
    }

    fn encode_requests(encoder: &mut DescriptorEncoder<'_>, cores: &[Arc<CoreMetrics>]) -> fmt::Result {
        let mut durations = encoder.encode_descriptor(
            "millrace_s3_request_duration",
            "Time from a request's headers to its reply's headers",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (kind, name) in KINDS {
            let mut snapshot = HistogramSnapshot::default();
            cores.iter().for_each(|core| core.kinds[kind as usize].duration.add_to(&mut snapshot));
            if snapshot.count() > 0 {
                let sum_seconds = snapshot.sum() as f64 / 1e9;
                let buckets = snapshot.exported_seconds();
                durations.encode_family(&[("operation", name)])?.encode_histogram::<NoLabelSet>(
                    sum_seconds,
                    snapshot.count(),
                    &buckets,
                    None,
                )?;
            }
        }
        let mut requests =
            encoder.encode_descriptor("millrace_s3_requests", "Requests answered", None, MetricType::Counter)?;
        for (kind, name) in KINDS {
            for (index, class) in CLASSES.iter().enumerate() {
                let count: u64 = cores.iter().map(|core| core.kinds[kind as usize].classes[index].get()).sum();
                if count > 0 {
                    requests
                        .encode_family(&[("operation", name), ("status", class)])?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        Ok(())
    }

    fn encode_connections(encoder: &mut DescriptorEncoder<'_>, cores: &[Arc<CoreMetrics>]) -> fmt::Result {
        let sum = |read: fn(&CoreMetrics) -> u64| cores.iter().map(|core| read(core)).sum::<u64>();
        encoder
            .encode_descriptor("millrace_s3_connections_open", "Open connections", None, MetricType::Gauge)?
            .encode_gauge(&i64::try_from(sum(|core| core.connections_open.get())).unwrap_or(i64::MAX))?;
        type Row = (&'static str, &'static str, fn(&CoreMetrics) -> u64);
        let counters: [Row; 6] = [
            ("millrace_s3_connections", "Connections accepted", |core| core.connections.get()),
            ("millrace_s3_connections_shed", "Connections turned away for lack of room", |core| {
                core.connections_shed.get()
            }),
            ("millrace_s3_connection_errors", "Connections ended by malformed or broken traffic", |core| {
                core.connection_errors.get()
            }),
            ("millrace_s3_accept_failures", "Failed accepts", |core| core.accept_failures.get()),
            ("millrace_s3_received_bytes", "Bytes received, after decryption", |core| core.received_bytes.get()),
            ("millrace_s3_sent_bytes", "Bytes sent, before encryption", |core| core.sent_bytes.get()),
        ];
        for (name, help, read) in counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&sum(read), None)?;
        }
        Ok(())
    }
}

/// The metrics in a registry that outlives them.
#[derive(Debug)]
pub struct Registered(pub Arc<Metrics>);

impl Collector for Registered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cores = self.0.cores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Metrics::encode_requests(&mut encoder, &cores)?;
        Metrics::encode_connections(&mut encoder, &cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_numbers() {
        for (index, (kind, _)) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
