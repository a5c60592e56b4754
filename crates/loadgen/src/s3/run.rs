//! A run: it fills the buckets, runs each cell on all servers in turn, and deletes what it wrote.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};

use super::body::Bytes;
use super::client::{Client, Hashes, read_key};
use super::connection::Reply;
use super::counts::{Counts, Wrong};
use super::plan::{Cell, Operation, Settings, Target};
use super::report::{Report, Row};
use crate::plan::BenchError;
use crate::random::Random;

/// How many clients fill and empty buckets.
const HELPERS: u64 = 16;
/// How many objects each client reads again after it has written.
const READ_AGAIN: u64 = 8;
/// How many keys each client writes before it starts again with its first one.
const KEYS: u64 = 1000;

/// What is told while a run goes on.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A server gets objects of this size.
    Filling(&'a Target, u64, u64),
    /// A second of a cell has passed: replies and bytes since the last, errors so far.
    Second(&'a Target, Cell, u64, u64, u64),
    /// A cell has ended on a server.
    Ended(&'a Row),
    /// The objects are deleted.
    Emptying(&'a Target),
}

/// What all clients of one cell share.
struct Shared {
    right: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    /// The next object that nobody has deleted.
    next: AtomicU64,
    ends: AtomicBool,
}

/// Runs all cells on all servers.
///
/// # Errors
/// If a server cannot be prepared. Wrong replies later are counted in the report.
pub fn run(
    targets: &[Target],
    cells: &[Cell],
    settings: &Settings,
    tell: &mut dyn FnMut(&Event<'_>),
) -> Result<Report, BenchError> {
    let context = Context { settings, bytes: Bytes::new(settings.seed), hashes: Hashes::default() };
    for target in targets {
        context.prepare(target, cells, tell)?;
    }
    let mut rows = Vec::new();
    for cell in cells {
        for round in 0..settings.rounds.max(1) {
            for target in targets {
                let row = context.measure(target, *cell, round, tell)?;
                tell(&Event::Ended(&row));
                rows.push(row);
            }
        }
    }
    if !settings.keeps_objects {
        for target in targets {
            tell(&Event::Emptying(target));
            context.empty(target)?;
        }
    }
    Ok(Report { seed: settings.seed, rows })
}

struct Context<'a> {
    settings: &'a Settings,
    bytes: Bytes,
    hashes: Hashes,
}

impl Context<'_> {
    fn client<'a>(&'a self, target: &'a Target) -> Client<'a> {
        Client::new(target, self.settings, &self.bytes, &self.hashes)
    }

    fn prepare(&self, target: &Target, cells: &[Cell], tell: &mut dyn FnMut(&Event<'_>)) -> Result<(), BenchError> {
        self.client(target).make_bucket().map_err(|wrong| not_ready(target, &wrong))?;
        let sizes = cells.iter().filter(|cell| cell.operation.reads()).map(|cell| cell.size);
        for size in sizes.collect::<BTreeSet<u64>>() {
            let objects = self.settings.objects_of(size);
            tell(&Event::Filling(target, size, objects));
            self.fill(target, objects, &|client, number| client.put(&read_key(size, number), number, size))?;
        }
        Ok(())
    }

    /// Does something for each number, with some clients at once. The first failure ends it.
    fn fill(
        &self,
        target: &Target,
        count: u64,
        act: &(dyn Fn(&mut Client<'_>, u64) -> Result<Reply, Wrong> + Sync),
    ) -> Result<(), BenchError> {
        let next = AtomicU64::new(0);
        let first = Mutex::new(None);
        scope(|scope| {
            for _ in 0..HELPERS.min(count) {
                scope.spawn(|| {
                    let mut client = self.client(target);
                    while first.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return;
                        }
                        if let Err(wrong) = act(&mut client, number) {
                            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
                        }
                    }
                });
            }
        });
        let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), |wrong| Err(not_ready(target, &wrong)))
    }

    fn measure(
        &self,
        target: &Target,
        cell: Cell,
        round: usize,
        tell: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Row, BenchError> {
        let mut warm_up = self.settings.warm_up;
        if cell.operation == Operation::Delete {
            // What a warm-up deleted would be missing.
            warm_up = Duration::ZERO;
            let objects = self.settings.objects_of(cell.size);
            self.fill(target, objects, &|client, number| client.put(&delete_key(cell.size, number), 0, cell.size))?;
        }
        let shared = Shared {
            right: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            next: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        };
        let start = Instant::now() + warm_up;
        let end = start + self.settings.duration;
        let (counts, last) = scope(|scope| {
            let (writers, writer_size) = cell.writers.unwrap_or_default();
            for id in 0..writers {
                let shared = &shared;
                scope.spawn(move || self.write_meanwhile(target, (id, writer_size), shared));
            }
            let client = |id| {
                let shared = &shared;
                scope.spawn(move || self.run_client(target, cell, (id, round), (start, end), shared))
            };
            let clients: Vec<_> = (0..cell.clients).map(client).collect();
            self.watch(target, cell, &shared, &|| clients.iter().all(|client| client.is_finished()), tell);
            shared.ends.store(true, Ordering::Relaxed);
            let (mut counts, mut last) = (Counts::new(), start);
            for client in clients {
                match client.join() {
                    Ok((of_client, ended)) => {
                        counts.add(of_client);
                        last = last.max(ended);
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            (counts, last)
        });
        Ok(Row::new(&target.name, cell, round, last - start, &counts))
    }

    /// Tells every second how far the clients are, until all have ended.
    fn watch(
        &self,
        target: &Target,
        cell: Cell,
        shared: &Shared,
        is_over: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Event<'_>),
    ) {
        let (mut due, mut right, mut bytes) = (Instant::now() + Duration::from_secs(1), 0, 0);
        while !is_over() {
            std::thread::sleep(Duration::from_millis(5));
            if Instant::now() < due {
                continue;
            }
            due += Duration::from_secs(1);
            let all = (shared.right.load(Ordering::Relaxed), shared.bytes.load(Ordering::Relaxed));
            let errors = shared.errors.load(Ordering::Relaxed);
            tell(&Event::Second(target, cell, all.0 - right, all.1 - bytes, errors));
            (right, bytes) = all;
        }
    }

    /// One client of a cell: its counts and when its last reply came.
    fn run_client(
        &self,
        target: &Target,
        cell: Cell,
        (id, round): (usize, usize),
        (start, end): (Instant, Instant),
        shared: &Shared,
    ) -> (Counts, Instant) {
        let mut worker = Worker {
            client: self.client(target),
            random: Random::new(self.settings.seed ^ (id as u64) << 32 ^ round as u64),
            prefix: format!("put/{}/{id}", cell.size),
            cell,
            objects: self.settings.objects_of(cell.size),
            keys: (self.settings.objects_of(cell.size) / cell.clients.max(1) as u64).clamp(1, KEYS),
            written: 0,
        };
        let (mut counts, mut last) = (Counts::new(), start);
        loop {
            let begun = Instant::now();
            // Everyone has at least one measured request, however long requests take.
            if begun >= end && counts.right + counts.errors.total() > 0 {
                break;
            }
            let Some(outcome) = worker.act(shared) else { break };
            last = Instant::now();
            match outcome {
                Ok((reply, bytes)) => {
                    shared.right.fetch_add(1, Ordering::Relaxed);
                    shared.bytes.fetch_add(bytes, Ordering::Relaxed);
                    if begun >= start {
                        counts.record(&reply, bytes);
                    }
                }
                Err(wrong) => {
                    shared.errors.fetch_add(1, Ordering::Relaxed);
                    counts.fail(wrong);
                    // A server that refuses everything must not be asked as fast as possible.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        if cell.operation == Operation::Put {
            worker.read_again(&mut counts);
        }
        counts.reconnects = worker.client.connection.reconnects;
        (counts, last)
    }

    /// Writes objects until the cell ends, beside the clients that are measured.
    fn write_meanwhile(&self, target: &Target, (id, size): (usize, u64), shared: &Shared) {
        let mut client = self.client(target);
        let mut number = 0;
        while !shared.ends.load(Ordering::Relaxed) {
            if client.put(&format!("meanwhile/{id}/{}", number % 2), number, size).is_err() {
                shared.errors.fetch_add(1, Ordering::Relaxed);
                return;
            }
            number += 1;
        }
    }

    /// Deletes what the run has written, and the bucket if nothing else is in it.
    fn empty(&self, target: &Target) -> Result<(), BenchError> {
        let mut client = self.client(target);
        for prefix in ["get/", "put/", "delete/", "meanwhile/"] {
            loop {
                let keys = client.some_keys(prefix).map_err(|wrong| not_ready(target, &wrong))?;
                if keys.is_empty() {
                    break;
                }
                self.fill(target, keys.len() as u64, &|client, number| client.delete(&keys[number as usize]))?;
            }
        }
        // It may hold somebody else's objects.
        let _ = client.remove_bucket();
        Ok(())
    }
}

fn delete_key(size: u64, number: u64) -> String {
    format!("delete/{size}/{number:08}")
}

struct Worker<'a> {
    client: Client<'a>,
    random: Random,
    /// Of the keys that it writes.
    prefix: String,
    cell: Cell,
    objects: u64,
    keys: u64,
    written: u64,
}

impl Worker<'_> {
    /// One request and the bytes of objects that it moved; nothing when there is no more to do.
    fn act(&mut self, shared: &Shared) -> Option<Result<(Reply, u64), Wrong>> {
        let size = self.cell.size;
        let operation = match self.cell.operation {
            Operation::Mixed => match self.random.below(100) {
                0..70 => Operation::Get,
                70..90 => Operation::Put,
                90..95 => Operation::List,
                _ => Operation::Delete,
            },
            operation => operation,
        };
        let number = self.random.below(self.objects);
        let (outcome, bytes) = match operation {
            Operation::Get | Operation::Mixed => (self.client.get(&read_key(size, number), number, size), size),
            Operation::Put => (self.put(), size),
            Operation::List => (self.client.list(size, number, self.objects), 0),
            Operation::ListDelimiter => (self.client.list_groups(size, number, self.objects), 0),
            Operation::Delete if self.cell.operation == Operation::Mixed => {
                let key = format!("{}/{}", self.prefix, number % self.keys);
                (self.client.delete(&key), 0)
            }
            Operation::Delete => {
                let number = shared.next.fetch_add(1, Ordering::Relaxed);
                if number >= self.objects {
                    return None;
                }
                (self.client.delete(&delete_key(size, number)), 0)
            }
        };
        Some(outcome.map(|reply| (reply, bytes)))
    }

    fn put(&mut self) -> Result<Reply, Wrong> {
        let key = format!("{}/{}", self.prefix, self.written % self.keys);
        let reply = self.client.put(&key, self.written, self.cell.size)?;
        self.written += 1;
        Ok(reply)
    }

    /// Compares the last objects that it has written with what it wrote.
    fn read_again(&mut self, counts: &mut Counts) {
        let first = self.written.saturating_sub(READ_AGAIN.min(self.keys));
        for number in first..self.written {
            let key = format!("{}/{}", self.prefix, number % self.keys);
            if let Err(wrong) = self.client.get(&key, number, self.cell.size) {
                counts.fail(wrong);
            }
        }
    }
}

fn not_ready(target: &Target, wrong: &Wrong) -> BenchError {
    BenchError::Connect(format!("{}: {}", target.name, wrong.text))
}
