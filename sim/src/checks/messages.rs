//! A message arrives once if its sender's operation took effect, and never otherwise. While it is on its way it has
//! arrived at most once.

use super::{States, View};
use crate::ledger::Kind;

pub fn check<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    for operation in &view.ledger.operations {
        let (to, sent) = match &operation.kind {
            Kind::Message { from, to, .. } => {
                let sent = view.number("note", from, &operation.mark());
                (to, (sent, sent))
            }
            Kind::Send { to } => (to, view.ledger.bounds(operation)),
            _ => continue,
        };
        let got = view.number("note", to, &format!("got{}", operation.id));
        let least = if view.is_final { sent.0 } else { 0 };
        if !(least..=sent.1).contains(&got) {
            return Err(format!("op{} was noted {got} times on {to}, expected {least} to {}", operation.id, sent.1));
        }
    }
    Ok(())
}
