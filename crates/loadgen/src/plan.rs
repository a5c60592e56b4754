//! The run to do.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::expectation::Expectation;
use super::request::RequestTemplate;

/// The most connections of one run: the ports of one address, for a few targets.
const CONNECTIONS: usize = 100_000;

/// The most requests in flight on one connection.
const PIPELINE: usize = 1024;

/// The reason why a run did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BenchError {
    /// The plan cannot be run.
    Arguments(String),
    /// No connection could be made.
    Connect(String),
    /// The machine refused something the run needs.
    System(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Arguments(message) | BenchError::Connect(message) | BenchError::System(message) => {
                formatter.write_str(message)
            }
        }
    }
}

impl std::error::Error for BenchError {}

/// One run against one address.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The target's name in the report, such as the URL.
    pub name: String,
    /// Where to connect.
    pub target: SocketAddr,
    /// What to send.
    pub request: RequestTemplate,
    /// What must come back.
    pub expectation: Expectation,
    /// Connections, over all threads.
    pub connections: usize,
    /// Threads; each has its share of the connections.
    pub threads: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// The measured time.
    pub duration: Duration,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// Requests a second over all threads; `None` is a closed loop, where each reply triggers
    /// the next request.
    pub rate: Option<f64>,
    /// After this long without its reply a request has failed.
    pub timeout: Duration,
    /// Where random keys come from; the same seed sends the same keys.
    pub seed: u64,
    /// The CPUs the threads are bound to, in turn; empty leaves that to the kernel.
    pub cpus: Vec<usize>,
    /// The processes whose CPU time is the server's.
    pub server_pids: Vec<u32>,
}

impl Plan {
    /// A closed loop of 64 connections and one thread for 10 seconds.
    #[must_use]
    pub fn new(name: &str, target: SocketAddr, request: RequestTemplate) -> Self {
        Self {
            name: name.to_owned(),
            target,
            request,
            expectation: Expectation::default(),
            connections: 64,
            threads: 1,
            pipeline: 1,
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            rate: None,
            timeout: Duration::from_secs(10),
            seed: rand::random(),
            cpus: Vec::new(),
            server_pids: Vec::new(),
        }
    }

    /// Whether the plan can be run.
    pub(super) fn check(&self) -> Result<(), BenchError> {
        let refuse = |message: String| Err(BenchError::Arguments(message));
        if self.connections == 0 || self.connections > CONNECTIONS {
            return refuse(format!("connections must be from 1 to {CONNECTIONS}"));
        }
        if self.threads == 0 || self.threads > self.connections || self.threads > 1024 {
            return refuse("threads must be from 1 to the number of connections, 1024 at most".to_owned());
        }
        if self.pipeline == 0 || self.pipeline > PIPELINE {
            return refuse(format!("the pipeline must be from 1 to {PIPELINE} requests deep"));
        }
        let day = Duration::from_secs(86_400);
        if self.duration < Duration::from_millis(100) || self.duration > day || self.warm_up > day {
            return refuse("the duration must be from 100 ms to a day, the warm-up a day at most".to_owned());
        }
        if self.timeout.is_zero() || self.timeout > day {
            return refuse("the timeout must be above 0, a day at most".to_owned());
        }
        match self.rate {
            Some(rate) if !(0.01..=1e8).contains(&rate) => {
                refuse("the rate must be from 0.01 to 100 million requests a second".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Connections of thread `index`: even shares, the first threads take the rest.
    pub(super) fn connections_of(&self, index: usize) -> usize {
        self.connections / self.threads + usize::from(index < self.connections % self.threads)
    }
}

/// The first address of `host` with `port`.
///
/// # Errors
/// If the name is unknown.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr, BenchError> {
    let failed = |why: String| BenchError::Connect(format!("cannot find {host}: {why}"));
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("it has no address".to_owned()))
}
