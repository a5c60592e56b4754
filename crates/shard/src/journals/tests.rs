//! The rows of workflows, alone.

use bytes::Bytes;
use millrace_base::UnixMillis;
use millrace_format::StepKind;

use super::*;
use crate::testing::{Bench, START, sequence};

fn record() -> WorkflowRecord {
    WorkflowRecord {
        has_ended: false,
        is_cancelled: false,
        began: START,
        chosen_id: None,
        runs: Vec::new(),
        version: 7,
        app: "app".to_owned(),
        service: "counter".to_owned(),
        handler: "flow".to_owned(),
        key: b"k".to_vec(),
        input: Bytes::new(),
    }
}

fn row(operation: u32) -> JournalRow {
    let result = Ok(Bytes::from_static(b"1"));
    JournalRow { kind: StepKind::Call, operation, ended: UnixMillis(1), name: "n".to_owned(), result }
}

#[test]
fn a_workflow_moves_when_it_ends_and_goes_with_its_journal() {
    let (journals, mut bench) = (Journals::new(), Bench::new(1));
    let (id, other) = (sequence(1, 0), sequence(2, 0));
    let mut writes = vec![journals.record_write(id, &record()), journals.record_write(other, &record())];
    writes.extend((0..3).map(|number| journals.row_write(id, number, &row(number + 1))));
    bench.context().append(writes);
    assert_eq!(journals.journal(id, &mut bench.rows).expect("it is read"), [row(1), row(2), row(3)]);
    assert_eq!(workflow_versions(bench.rows.store()).expect("it is read"), [("app".to_owned(), 7)].into());
    let ended = WorkflowRecord { has_ended: true, ..record() };
    bench.context().append(vec![journals.live_deletion(id), journals.record_write(id, &ended)]);
    assert_eq!(journals.live(id, &mut bench.rows).expect("it is read"), None);
    assert_eq!(journals.record(id, &mut bench.rows).expect("it is read"), Some(ended.clone()));
    let live = journals.live_after(None, 9, &mut bench.rows).expect("they are read");
    assert_eq!(live, [(Some(other), Some(record()))]);
    assert_eq!(journals.ended_after(None, 9, &mut bench.rows).expect("they are read"), (vec![(id, ended)], false));
    let mut writes = Vec::new();
    journals.add_deletions(other, &mut writes, &mut bench.rows);
    assert_eq!(writes.len(), 0, "it has not ended");
    journals.add_deletions(id, &mut writes, &mut bench.rows);
    bench.context().append(writes);
    assert_eq!(journals.record(id, &mut bench.rows).expect("it is read"), None);
    assert_eq!(journals.journal(id, &mut bench.rows).expect("it is read"), []);
}
