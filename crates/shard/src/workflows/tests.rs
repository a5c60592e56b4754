//! Workflows alone: what a shard finds of them after a start.

use bytes::Bytes;
use millrace_format::WorkflowRecord;

use super::stranded::Stranded;
use super::{WorkflowContext, Workflows};
use crate::bookkeeping::Bookkeeping;
use crate::testing::{Bench, START, TestWorld, sequence};

fn record(handler: &str) -> WorkflowRecord {
    WorkflowRecord {
        has_ended: false,
        is_cancelled: false,
        began: START,
        chosen_id: None,
        runs: Vec::new(),
        version: 7,
        app: "app".to_owned(),
        service: "counter".to_owned(),
        handler: handler.to_owned(),
        key: b"k".to_vec(),
        input: Bytes::new(),
    }
}

#[test]
fn a_stranded_workflow_is_taken_up_once_its_code_is_deployed() {
    let (mut stranded, mut world) = (Stranded::default(), TestWorld::new());
    stranded.add(sequence(1, 0), record("gone"));
    stranded.add(sequence(2, 0), record("run"));
    let versions: Vec<(String, u64)> =
        stranded.versions().into_iter().map(|(app, version)| (app.to_string(), version)).collect();
    assert_eq!(versions, [("app".to_owned(), 7)]);
    let found = stranded.deployed(&world.world());
    assert_eq!(found, [(sequence(2, 0), record("run"))]);
    assert_eq!(stranded.deployed(&world.world()), [], "nothing was deployed since");
    assert_eq!(stranded.len(), 1);
    stranded.get(sequence(1, 0)).expect("it waits").is_cancelled = true;
    let listed: Vec<_> = stranded.after(std::ops::Bound::Unbounded, 9).collect();
    assert_eq!(listed, [(sequence(1, 0), WorkflowRecord { is_cancelled: true, ..record("gone") })]);
}

/// After a start a shard takes up some workflows with each input, and none while the disk is full.
#[test]
fn workflows_that_have_yet_to_be_taken_up_are_listed() {
    let (mut bench, mut world) = (Bench::new(1), TestWorld::new());
    let mut books = Bookkeeping::recover(&mut bench.rows).expect("nothing is there");
    // Not all are of an app that is deployed.
    let handlers = ["run", "gone"];
    let all: Vec<_> = (1..100_u64).map(|lsn| (sequence(lsn, 0), record(handlers[usize::from(lsn % 3 == 0)]))).collect();
    let writes = all.iter().map(|(id, record)| books.journals.record_write(*id, record)).collect();
    bench.context().append(writes);
    let mut workflows = Workflows::default();
    for taken_up in 0..9 {
        let mut world = world.world();
        let mut context = WorkflowContext { rows: &mut bench.rows, books: &mut books, world: &mut world };
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (rows, has_more) = workflows.list_rows(after, 10, true, &mut context).expect("they are read");
            assert!(rows.len() <= 10);
            after = rows.last().map(|(id, ..)| (false, *id));
            listed.extend(rows.into_iter().map(|(id, record, _)| (id, record)));
            if !has_more {
                break;
            }
        }
        assert_eq!(listed, all, "after {taken_up} inputs");
        workflows.take_up_more(&mut context);
    }
    assert!(workflows.has_taken_up_all);
}
