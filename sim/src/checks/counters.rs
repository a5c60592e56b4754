//! A counter is exactly the number of increments that took effect.

use std::collections::BTreeMap;

use super::{States, View};
use crate::ledger::Kind;

pub fn check<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for operation in &view.ledger.operations {
        if let Kind::Add { key } = &operation.kind {
            *sums.entry(key).or_default() += view.number("counter", key, &operation.mark());
        }
    }
    for (key, sum) in sums {
        let found = view.number("counter", key, "n");
        if found != sum {
            return Err(format!("counter {key} is {found}, its increments make {sum}"));
        }
    }
    Ok(())
}
