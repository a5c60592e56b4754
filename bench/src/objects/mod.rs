//! Objects beside S3 servers of others: the sides, the cells, and the aims that judge them.

mod aims;
mod page;
mod sides;

pub use aims::{Aim, aims, table};
pub use page::{Run, medians, page};
pub use sides::{Side, open};

use millrace_loadgen::s3::{Cell, Operation, Settings};

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// The server that the aims are about.
pub const OURS: &str = "millrace";

/// The server of files, which only reads are compared with.
pub const FILES: &str = "nginx";

/// Clients of small objects: alone, and many.
const FEW_AND_MANY: [usize; 2] = [1, 20];
/// Clients that write small objects.
const WRITING: usize = 64;
/// Clients of large objects: together they keep two CPUs busy.
const LARGE_CLIENTS: usize = 4;
/// Clients that list.
const LISTING: usize = 4;
/// Uploads beside which small reads are measured.
const UPLOADS: (usize, u64) = (16, 256 * MB);

/// Cells that share a run, with its settings.
pub struct Part {
    /// Names it on the command line.
    pub name: &'static str,
    /// In the order of the run.
    pub cells: Vec<Cell>,
    /// The run's limits.
    pub settings: Settings,
    /// Whether the server of files takes part.
    pub has_files: bool,
}

/// All parts. Listings go over `listed` keys.
#[must_use]
pub fn parts(settings: &Settings, listed: u64) -> Vec<Part> {
    let small_reads = FEW_AND_MANY.map(|clients| Cell::new(Operation::Get, KB, clients));
    let small_writes = [KB, 16 * KB].map(|size| Cell::new(Operation::Put, size, WRITING));
    let more = [Cell::new(Operation::Get, 16 * KB, FEW_AND_MANY[1]), Cell::new(Operation::Put, KB, FEW_AND_MANY[0])];
    let large = |operation| [MB, 16 * MB, 256 * MB].map(|size| Cell::new(operation, size, LARGE_CLIENTS));
    let beside = Cell { writers: Some(UPLOADS), ..small_reads[1] };
    let lists = [Operation::List, Operation::ListDelimiter].map(|operation| Cell::new(operation, 0, LISTING));
    let part = |name, cells| Part { name, cells, settings: settings.clone(), has_files: false };
    vec![
        part("small", [small_reads, small_writes, more].concat()),
        Part { has_files: true, ..part("large", large(Operation::Get).to_vec()) },
        part("large", large(Operation::Put).to_vec()),
        part("beside", vec![small_reads[1], beside]),
        Part { settings: Settings { objects: listed, ..settings.clone() }, ..part("list", lists.to_vec()) },
    ]
}
