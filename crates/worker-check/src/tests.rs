//! A worker that does nothing right passes next to nothing, and no list runs for ever.

use std::cell::Cell;
use std::collections::BTreeSet;

use bytes::Bytes;
use millrace_format::worker::{FrameValue, WorkerFrame};

use super::*;

/// Answers everything with the same reply, and counts.
struct Always {
    reply: Reply,
    asked: Cell<u32>,
}

impl Transport for Always {
    fn ask(&self, _: Ask) -> Result<Reply, String> {
        self.asked.set(self.asked.get() + 1);
        Ok(self.reply.clone())
    }

    fn base_path(&self) -> &str {
        ""
    }
}

fn always(status: u16, body: Vec<u8>) -> Always {
    let content_type = "application/json".to_owned();
    Always { reply: Reply { status, content_type, body: Bytes::from(body) }, asked: Cell::new(0) }
}

/// The names of the cases that pass.
fn passed(transport: &Always) -> Vec<&'static str> {
    let outcomes = run(&Bench::new(transport, Some(Signer::Secret("secret".to_owned()))), "");
    outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Passed).map(|outcome| outcome.case.name).collect()
}

#[test]
fn there_are_many_cases_and_each_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = cases().map(|case| case.name).collect();
    assert_eq!(names.len(), cases().count());
    assert!(names.len() >= 120, "{}", names.len());
    assert!(cases().all(|case| case.name.split_once('/').is_some() && !case.expected.is_empty()));
    assert!(cases::OF_VERSION_2.iter().all(|name| names.contains(name)));
}

#[test]
fn a_server_that_is_no_worker_passes_only_what_it_refuses() {
    assert_eq!(passed(&always(200, Vec::new())), [""; 0]);
    let refused = passed(&always(404, Vec::new()));
    assert_eq!(refused, ["discovery/other-paths", "discovery/invoke-is-posted", "frames/attempt-missing"]);
}

#[test]
fn a_worker_that_never_gets_on_ends_the_list_all_the_same() {
    let mut turn = Vec::new();
    WorkerFrame::Suspend { operations: vec![1] }.encode(&mut turn);
    assert_eq!(passed(&always(200, turn)), [""; 0]);
    let mut turn = Vec::new();
    WorkerFrame::Output(FrameValue::Json(Bytes::from_static(b"1"))).encode(&mut turn);
    let worker = always(200, turn);
    assert_eq!(passed(&worker), [""; 0]);
    assert!(worker.asked.get() < 1_000, "{}", worker.asked.get());
}

#[test]
fn without_a_secret_signatures_are_skipped() {
    let worker = always(200, Vec::new());
    let outcomes = run(&Bench::new(&worker, None), cases::SIGNED);
    assert!(outcomes.iter().all(|outcome| matches!(outcome.verdict, Verdict::Skipped(_))));
    assert_eq!(worker.asked.get(), 0);
}
