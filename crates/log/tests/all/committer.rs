//! The committer's thread: batches come back in order and empty. It waits out a full disk. A failure reaches every
//! later batch, and closing is clean.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::*;
use millrace_base::Lsn;
use millrace_io::{Disk, RealClock, RealDisk, RealRandom};
use millrace_log::{Committed, Committer, Environment, LogError, Segments, Space, Writer, WriterOptions, recover};

fn start(writer: Writer) -> (Committer, Receiver<Committed>) {
    let (sender, receiver) = channel();
    let callback = move |committed| {
        let _ = sender.send(committed);
    };
    (Committer::start(writer, Box::new(callback)).expect("started"), receiver)
}

/// A writer with a real clock, because the committer waits by it.
fn open_in_real_time(disk: &MemoryDisk) -> Writer {
    let environment = Environment { clock: Arc::new(RealClock), ..environment(disk) };
    Writer::open(environment, Segments::new(Arc::new(disk.clone()), unlisted()), small()).expect("opened")
}

fn next(receiver: &Receiver<Committed>) -> Committed {
    receiver.recv_timeout(Duration::from_secs(20)).expect("an answer")
}

#[test]
fn batches_become_durable_in_order_on_a_real_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(directory.path()));
    let recovered = recover(&disk, &unlisted(), &|_| Lsn::ZERO, &mut |_| {}).expect("an empty log");
    let environment = Environment { disk: Arc::clone(&disk), clock: Arc::new(RealClock), random: Arc::new(RealRandom) };
    // Segments of 64 KiB: some thirty of them, so that the committer also waits for the helper's work.
    let options = WriterOptions {
        run: recovered.next_run,
        first_segment_bytes: 64 << 10,
        segment_bytes: 64 << 10,
        ..WriterOptions::default()
    };
    let (committer, receiver) = start(Writer::open(environment, recovered.segments.clone(), options).expect("opened"));
    let mut free = vec![batch_of(&[]), batch_of(&[])];
    let mut durable = 0;
    for lsn in 1..=500 {
        let mut batch = free.pop().unwrap_or_else(|| match next(&receiver) {
            Committed::Durable { batch, report } => {
                assert!(batch.is_empty());
                assert_eq!((report.entries, batch.committed()[0].last.0), (1, durable + 1));
                durable += 1;
                batch
            }
            other => panic!("{other:?}"),
        });
        push(&mut batch, 1, lsn, format!("1/{lsn}").as_bytes());
        committer.submit(batch);
        if lsn % 50 == 0 {
            let deleted = recovered.segments.delete_covered(&|_| Lsn(durable), 0).expect("deleted");
            assert!(deleted.segments > 0 || lsn < 100);
        }
    }
    committer.close().expect("closed");
    let mut lsns = Vec::new();
    let recovered = recover(&disk, &unlisted(), &|_| Lsn(490), &mut |entry| lsns.push(entry.lsn.0)).expect("recovered");
    assert_eq!(lsns, (491..=500).collect::<Vec<_>>());
    assert!(recovered.unclosed.is_empty(), "closed cleanly");
}

#[test]
fn a_full_disk_is_waited_out() {
    let disk = MemoryDisk::default();
    let writer = open_in_real_time(&disk);
    disk.set_capacity(Some(disk.used()));
    let (committer, receiver) = start(writer);
    assert!(matches!(next(&receiver), Committed::Space(Space::Low)), "said before anything is submitted");
    for lsn in 1..=4 {
        committer.submit(batch_of(&[(1, lsn)]));
    }
    for _ in 1..=3 {
        assert!(matches!(next(&receiver), Committed::Durable { .. }));
    }
    assert!(matches!(next(&receiver), Committed::OutOfSpace));
    assert!(receiver.recv_timeout(Duration::from_millis(700)).is_err(), "said once");
    disk.set_capacity(None);
    let mut answers = [next(&receiver), next(&receiver)];
    answers.sort_by_key(|answer| matches!(answer, Committed::Space(_)));
    assert!(matches!(&answers[0], Committed::Durable { batch, .. } if batch.committed()[0].last.0 == 4));
    assert!(matches!(answers[1], Committed::Space(Space::Enough)));
    committer.close().expect("closed");
    assert_eq!(recover_all(&disk).expect("recovered").0.len(), 4);
}

#[test]
fn closing_on_a_full_disk_gives_waiting_batches_back() {
    let disk = MemoryDisk::default();
    let writer = open_in_real_time(&disk);
    disk.set_capacity(Some(disk.used()));
    let (committer, receiver) = start(writer);
    for lsn in 1..=4 {
        committer.submit(batch_of(&[(1, lsn)]));
    }
    committer.close().expect("closed");
    let failed: Vec<_> = receiver
        .into_iter()
        .filter_map(|answer| match answer {
            Committed::Failed { batch, error } => Some((batch.entry_count(), error)),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [(1, LogError::OutOfSpace)]);
    let (entries, recovered) = recover_all(&disk).expect("recovered");
    assert_eq!((entries.len(), recovered.unclosed.len()), (3, 0));
}

#[test]
fn after_a_failed_fsync_every_batch_comes_back_failed() {
    let disk = MemoryDisk::default();
    let (committer, receiver) = start(open_in_real_time(&disk));
    committer.submit(batch_of(&[(1, 1)]));
    assert!(matches!(next(&receiver), Committed::Durable { .. }));
    disk.fail_syncs(true);
    committer.submit(batch_of(&[(1, 2)]));
    // The helper may be preparing the spare segment just now, and fail too. That failure is reported separately.
    let next = |receiver| loop {
        match next(receiver) {
            Committed::Space(_) => {}
            answer => return answer,
        }
    };
    let is_failed = |answer: &Committed| matches!(answer, Committed::Failed { error: LogError::Failed(_), .. });
    assert!(is_failed(&next(&receiver)));
    disk.fail_syncs(false);
    committer.submit(batch_of(&[(1, 2)]));
    assert!(is_failed(&next(&receiver)));
    assert!(committer.close().is_err());
}

#[test]
fn dropping_the_committer_is_like_a_crash() {
    let disk = MemoryDisk::default();
    let (committer, receiver) = start(open_in_real_time(&disk));
    committer.submit(batch_of(&[(1, 1)]));
    assert!(matches!(next(&receiver), Committed::Durable { .. }));
    drop(committer);
    let (entries, recovered) = recover_all(&disk).expect("recovered");
    assert_eq!((entries.len(), recovered.unclosed.len()), (1, 1));
}
