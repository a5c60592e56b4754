//! Memory of many records: the server's resident memory with them, less that of the empty server.

use std::time::{Duration, Instant};

use millrace_loadgen::process::ProcessUse;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fill::fill;
use super::workload::make_type;
use crate::Outcome;
use crate::contest::Judgement;
use crate::rows::of_judgement;
use crate::server::{Kind, Server, Setup};
use crate::summary::Row;
use crate::transactions::workload::{get, metric};

const AIM_BYTES: f64 = 250.0;
/// Memory is settled after it has moved by at most 1 % for this time.
const STILL: Duration = Duration::from_secs(8);
/// After this time memory is taken as it is, and a remark says so.
const PATIENCE: Duration = Duration::from_secs(180);
const GLANCE: Duration = Duration::from_millis(500);
/// Memory setting for each record: far above the aim, so that no record leaves memory.
const ROOM_BYTES: u64 = 2048;

/// Metrics of the server for the remarks.
const FIGURES: [&str; 4] = [
    "millrace_resident_bytes",
    "millrace_resident_entities",
    "millrace_dirty_bytes",
    "millrace_checkpoint_bytes_total",
];

/// The result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The result for the aim.
    pub judgement: Judgement,
    /// Records put.
    pub records: u64,
    /// Resident memory before.
    pub empty_bytes: f64,
    /// Resident memory with all of them.
    pub full_bytes: f64,
    /// Further lines for a person.
    pub remarks: Vec<String>,
}

/// The cell in a summary.
pub const ID: &str = "memory";

impl Memory {
    /// The rows of a summary.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let resident = |side: &str, bytes| Row::figure(ID, side, ("resident", "bytes"), &[bytes]);
        let full = format!("{} records", self.records);
        vec![
            of_judgement(ID, &self.judgement),
            resident("no records", self.empty_bytes),
            resident(&full, self.full_bytes),
        ]
    }
}

fn record(id: u64) -> String {
    let (age, gender) = (id % 100, ["Unknown", "Female", "Male"][(id % 3) as usize]);
    format!(r#"{{"name":"Person {id}","age":{age},"gender":"{gender}","emails":["person{id}@example.org"]}}"#)
}

/// Puts `records` different records and weighs the server.
#[must_use]
pub fn measure(setup: &Setup, records: u64) -> Memory {
    let mut memory = Memory {
        judgement: Judgement::missing(&title(records), aim(), "it did not end"),
        records,
        empty_bytes: 0.0,
        full_bytes: 0.0,
        remarks: Vec::new(),
    };
    if let Err(error) = fill_and_weigh(setup, &mut memory) {
        eprintln!("memory: {error}");
        memory.judgement = Judgement::missing(&title(records), aim(), &error);
    }
    memory
}

fn title(records: u64) -> String {
    format!("memory of a PersonInfo record, {records} of them")
}

fn aim() -> String {
    format!("≤ {AIM_BYTES} bytes")
}

fn fill_and_weigh(setup: &Setup, memory: &mut Memory) -> Outcome<()> {
    let records = memory.records;
    let memory_mib = Some(((records * ROOM_BYTES) >> 20) + 1024);
    // The server's default durability.
    let server = Server::start(&Kind::Records { durability: "fsync", cores: 1, memory_mib }, setup)?;
    make_type(server.address)?;
    let (empty, _) = settled(&server)?;
    let start = Instant::now();
    fill(server.address, 1..records + 1, &setup.load_cpus, record)?;
    let seconds = start.elapsed().as_secs_f64();
    let (full, is_still) = settled(&server)?;
    (memory.empty_bytes, memory.full_bytes) = (empty, full);
    check(&server, records)?;
    let each = (full - empty) / records as f64;
    eprintln!("memory: {each:.1} bytes a record, filled in {seconds:.0} s");
    memory.judgement = Judgement::new(&title(records), aim(), "bytes", vec![each], |bytes| bytes <= AIM_BYTES);
    memory.remarks.push(format!("Filling took {seconds:.0} s: {:.0} durable PUTs a second.", records as f64 / seconds));
    if !is_still {
        memory.remarks.push(format!("After {PATIENCE:?} memory still moved."));
    }
    for name in FIGURES {
        if let Ok(value) = metric(server.address, name) {
            memory.remarks.push(format!("`{name}`: {value:.0} ({:.1} for each record).", value / records as f64));
        }
    }
    let mean = (1..=records.min(1000)).map(|at| record(at * records / records.clamp(1, 1000)).len()).sum::<usize>();
    memory.remarks.push(format!("A record is {:.0} bytes of JSON.", mean as f64 / records.clamp(1, 1000) as f64));
    server.stop()
}

/// Resident bytes after they have settled, and whether they have.
fn settled(server: &Server) -> Outcome<(f64, bool)> {
    let resident = || -> Outcome<f64> { Ok(ProcessUse::of_all(&server.pids())?.resident_bytes as f64) };
    let start = Instant::now();
    let (mut since, mut reference) = (Instant::now(), resident()?);
    loop {
        std::thread::sleep(GLANCE);
        let now = resident()?;
        if (now - reference).abs() > reference / 100.0 {
            (since, reference) = (Instant::now(), now);
        }
        // The server still writes dirty entities to the checkpoint.
        let is_flushed = metric(server.address, "millrace_dirty_bytes").is_ok_and(|dirty| dirty < reference / 50.0);
        if since.elapsed() >= STILL && (is_flushed || start.elapsed() >= PATIENCE / 2) {
            return Ok((now, true));
        }
        if start.elapsed() >= PATIENCE {
            return Ok((now, false));
        }
    }
}

/// Compares the first record, the last one and some between.
fn check(server: &Server, records: u64) -> Outcome<()> {
    for at in 0..100 {
        let id = (at * records / 99).clamp(1, records);
        let found = get(server.address, &format!("/records/personinfo/{id}"))?;
        let wanted: Value = serde_json::from_str(&record(id)).map_err(|error| error.to_string())?;
        if found != wanted {
            return Err(format!("record {id} is {found}"));
        }
    }
    Ok(())
}
