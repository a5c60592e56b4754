//! An acknowledged operation took effect once, and a refused one never. An operation with an unknown fate took effect
//! at most once.

use super::{States, View};

pub fn check<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    for operation in &view.ledger.operations {
        // A call that was only sent runs later; `messages` checks it.
        if !operation.has_mark() {
            continue;
        }
        let (least, most) = view.ledger.bounds(operation);
        let (service, key, _) = operation.target();
        let count = view.number(service, key, &operation.mark());
        if !(least..=most).contains(&count) {
            return Err(format!("{operation:?} took effect {count} times, expected {least} to {most}"));
        }
    }
    Ok(())
}
