//! Backups from the command line: `millrace backup` and `millrace restore`.

use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bytes::{Buf, Bytes};
use clap::{Args, Subcommand};
use millrace_backup::{Folder, Missing, Place, Repository, Snapshot};
use millrace_client::{BackupStream, Client, ClientError};

use crate::bucket_place::{BucketArgs, BucketPlace};
use crate::calls::{block_on, client};
use crate::cli::NodeArgs;
use crate::table::Table;
use crate::{Failure, Incomplete};

pub(crate) const BACKUP_EXAMPLES: &str = "\
Examples:
  millrace backup /mnt/backups/shop
  millrace backup list /mnt/backups/shop
  millrace backup verify /mnt/backups/shop
  millrace backup prune /mnt/backups/shop --keep 7
  millrace backup s3://backups/shop --s3-endpoint https://s3.example.org";

pub(crate) const RESTORE_EXAMPLES: &str = "\
Examples:
  millrace restore /mnt/backups/shop --data ./restored
  millrace restore /mnt/backups/shop --data ./restored --backup 2026-01-02T03-04-05.678Z";

/// Pieces of a backup that have come and are not written yet.
const PIECES: usize = 64;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// The folder that keeps the backups, or s3://BUCKET/PREFIX: empty or not there yet, the first time
    #[arg(value_name = "PLACE")]
    place: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    bucket: BucketArgs,
}

#[derive(Subcommand, Debug)]
enum BackupCommand {
    /// List the backups in a folder, oldest first
    List {
        /// The folder, or s3://BUCKET/PREFIX
        place: String,
        #[command(flatten)]
        bucket: BucketArgs,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Read every byte of the backups in a folder, and compare it with its hash
    ///
    /// The exit code is 1 if anything is damaged or missing.
    Verify {
        /// The folder, or s3://BUCKET/PREFIX
        place: String,
        #[command(flatten)]
        bucket: BucketArgs,
        /// Only this backup, as `millrace backup list` prints it
        #[arg(long, value_name = "ID")]
        backup: Option<String>,
    },
    /// Give up old backups, and what only they need
    Prune {
        /// The folder, or s3://BUCKET/PREFIX
        place: String,
        #[command(flatten)]
        bucket: BucketArgs,
        /// How many to keep of each data directory: the newest
        #[arg(long, value_name = "N")]
        keep: NonZeroUsize,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The folder that keeps the backups, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    place: String,
    #[command(flatten)]
    bucket: BucketArgs,
    /// The directory to make; it must be empty or not be there
    #[arg(long, value_name = "DIR", env = "MILLRACE_DATA")]
    data: PathBuf,
    /// Which backup, as `millrace backup list` prints it; the newest without this
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
}

/// Backs up, lists, verifies or prunes.
///
/// # Errors
/// Why there is no new backup; or that something in the place is damaged.
pub(crate) fn run(args: &BackupArgs) -> Result<(), Failure> {
    match (&args.command, &args.place) {
        (Some(BackupCommand::List { place, bucket, json }), _) => list(&open(place, bucket)?, *json),
        (Some(BackupCommand::Verify { place, bucket, backup }), _) => verify(&open(place, bucket)?, backup.as_deref()),
        (Some(BackupCommand::Prune { place, bucket, keep }), _) => prune(&open(place, bucket)?, *keep),
        (None, Some(place)) => {
            let repository = Repository::open_or_make(place_at(place, &args.bucket)?)?;
            back_up(&repository, client(&args.node)?)
        }
        (None, None) => Err("name the folder that keeps the backups".into()),
    }
}

fn place_at(place: &str, bucket: &BucketArgs) -> Result<Box<dyn Place>, Failure> {
    Ok(match place.strip_prefix("s3://") {
        Some(of_bucket) => Box::new(BucketPlace::open(of_bucket, bucket)?),
        None => Box::new(Folder::new(Path::new(place))),
    })
}

fn open(place: &str, bucket: &BucketArgs) -> Result<Repository, Failure> {
    Ok(Repository::open(place_at(place, bucket)?)?)
}

fn back_up(repository: &Repository, client: Client) -> Result<(), Failure> {
    // What the node does not do is said before anything is made of it.
    let (pieces, archive) = sync_channel(PIECES);
    let (begun, has_begun) = sync_channel(1);
    let receiver = std::thread::spawn(move || {
        block_on(async move {
            let stream = match client.backup().await {
                Ok(stream) => stream,
                Err(error) => {
                    // The other end waits for this one word.
                    let _ = begun.send(false);
                    return Err(error);
                }
            };
            let _ = begun.send(true);
            forward(stream, &pieces).await
        })
    });
    let kept = match has_begun.recv() {
        Ok(true) => Some(repository.backup(Archive { pieces: archive, piece: Bytes::new() })),
        _ => None,
    };
    let sent = receiver.join().unwrap_or_else(|_| Err("the backup's receiver panicked".into()));
    let report = match (kept, sent) {
        (Some(Ok(report)), _) => report,
        // A node that broke off says why; so does a place that took no more.
        (Some(Err(error)), Ok(())) => return Err(error.into()),
        (_, Err(error)) => return Err(error),
        (None, Ok(())) => return Err("the node sent nothing".into()),
    };
    println!("backup {}: {} files, {} bytes, {} of them new", report.id, report.files, report.bytes, report.new_bytes);
    say_what_is_missing(&report.missing, "is not in the backup, as no node can read it; all else is")
}

/// # Errors
/// [`Incomplete`], if anything is missing.
fn say_what_is_missing(missing: &[Missing], is_what: &str) -> Result<(), Failure> {
    for one in missing {
        println!("missing: {one}");
    }
    match missing {
        [] => Ok(()),
        [one] => Err(Incomplete(format!("the {one} {is_what}")).into()),
        _ => Err(Incomplete(format!("the content of {} objects {is_what}", missing.len())).into()),
    }
}

/// Hands on what comes. When nobody takes it any more, whoever took it says why.
async fn forward(mut stream: BackupStream, pieces: &SyncSender<Bytes>) -> Result<(), ClientError> {
    while let Some(piece) = stream.next().await? {
        if pieces.send(piece).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Pieces as one text to read.
struct Archive {
    pieces: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.recv() {
                Ok(piece) => self.piece = piece,
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

fn list(repository: &Repository, is_json: bool) -> Result<(), Failure> {
    let snapshots = repository.snapshots()?;
    if is_json {
        for snapshot in &snapshots {
            let Snapshot { id, taken_ms, server, identity, files, missing, .. } = snapshot;
            let bytes = snapshot.bytes();
            let line = serde_json::json!({
                "id": id, "taken_ms": taken_ms, "server": server, "identity": identity, "files": files.len(), "bytes": bytes,
                "missing": missing
            });
            println!("{line}");
        }
        return Ok(());
    }
    let mut table = Table::new(&["BACKUP", "FILES", "BYTES", "MISSING", "SERVER"]);
    for snapshot in &snapshots {
        let [files, bytes, missing] = [snapshot.files.len() as u64, snapshot.bytes(), snapshot.missing.len() as u64]
            .map(|number| number.to_string());
        table.row(&[&snapshot.id, &files, &bytes, &missing, &snapshot.server]);
    }
    print!("{}", table.render());
    Ok(())
}

fn verify(repository: &Repository, id: Option<&str>) -> Result<(), Failure> {
    let snapshots = match id {
        Some(id) => vec![repository.snapshot(Some(id))?],
        None => repository.snapshots()?,
    };
    let report = repository.verify(&snapshots)?;
    for damage in &report.damage {
        println!("damage: {damage}");
    }
    if !report.damage.is_empty() {
        let what = format!(
            "{} of {} chunks are damaged: make a new backup, which writes them again where the \
                            data still has them, and verify again",
            report.damage.len(),
            report.chunks
        );
        return Err(what.into());
    }
    println!("{} backups are whole: {} chunks, {} bytes", report.snapshots, report.chunks, report.bytes);
    Ok(())
}

fn prune(repository: &Repository, keep: NonZeroUsize) -> Result<(), Failure> {
    let report = repository.prune(keep)?;
    for id in &report.removed {
        println!("gave up {id}");
    }
    println!("kept {} backups; removed {} chunks, {} bytes", report.kept, report.chunks, report.bytes);
    Ok(())
}

/// Makes a data directory.
///
/// # Errors
/// Why it was not made.
pub(crate) fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let repository = open(&args.place, &args.bucket)?;
    let snapshot = repository.snapshot(args.backup.as_deref())?;
    let report = repository.restore(&snapshot, &args.data)?;
    println!("restored {} into {}: {} files, {} bytes", snapshot.id, args.data.display(), report.files, report.bytes);
    if millrace_node::is_of_cluster_backup(&args.data) {
        eprintln!(
            "it is of a node of a cluster: run `millrace cluster rescue {0} --accept-loss`, start it with `millrace serve \
             --cluster-data {0}` where that node listened, and have others join",
            args.data.display()
        );
    }
    say_what_is_missing(&snapshot.missing, "was not in the backup, as no node could read it; all else is restored")
}
