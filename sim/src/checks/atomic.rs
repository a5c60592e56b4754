//! A transfer is noted on both accounts or on none. The effects of a failed part of it are nowhere.

use super::{States, View};
use crate::ledger::Kind;

pub fn check<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    for operation in &view.ledger.operations {
        let Kind::Transfer { from, to, via, .. } = &operation.kind else {
            continue;
        };
        let (here, there) =
            (view.number("account", from, &operation.mark()), view.number("account", to, &operation.mark()));
        if here != there && from != to {
            return Err(format!("op{} is noted {here} times on {from} and {there} times on {to}", operation.id));
        }
        if let Some(via) = via {
            let noted = view.number("account", via, &format!("via{}", operation.id));
            if noted != here {
                return Err(format!("op{} is noted {here} times on {from} and {noted} times on {via}", operation.id));
            }
        }
        let failed = view.number("account", to, &format!("bad{}", operation.id));
        if failed != 0 {
            return Err(format!("op{} left what its failed part did on {to}", operation.id));
        }
    }
    Ok(())
}
