//! Stranded workflows alone: each is taken up once its code is deployed.

use bytes::Bytes;
use millrace_format::WorkflowRecord;

use super::stranded::Stranded;
use crate::testing::{START, TestWorld, sequence};

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
