//! An operation that was acknowledged took effect once; one that was refused, never; one whose
//! fate nobody knows, at most once.

use super::View;

pub fn check(view: &mut View<'_>) -> Result<(), String> {
    for operation in &view.ledger.operations {
        // What was only sent runs later; `messages` looks after it.
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
