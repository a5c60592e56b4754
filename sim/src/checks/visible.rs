//! What a client was told of a counter is still true: it has not become less.

use super::View;

pub fn check(view: &mut View<'_>) -> Result<(), String> {
    for (key, seen) in &view.ledger.seen {
        let found = view.number("counter", key, "n");
        if found < *seen {
            return Err(format!("counter {key} was seen as {seen} and is {found}"));
        }
    }
    Ok(())
}
