//! Each account holds what its transfers say. So each bank sums up to what it began with: nothing.

use std::collections::BTreeMap;

use super::{States, View};
use crate::ledger::Kind;

pub fn check<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    let mut balances: BTreeMap<&str, i64> = BTreeMap::new();
    for operation in &view.ledger.operations {
        if let Kind::Transfer { from, to, amount, .. } = &operation.kind {
            let count = view.number("account", from, &operation.mark()).min(1);
            *balances.entry(from).or_default() -= amount * count;
            *balances.entry(to).or_default() += amount * count;
        }
    }
    for operation in &view.ledger.operations {
        // Money that a saga has taken and not yet given is on its way.
        if let Kind::Saga { from, to, amount, .. } = &operation.kind {
            *balances.entry(from).or_default() -= amount * view.number("account", from, &operation.mark());
            *balances.entry(to).or_default() += amount * view.number("account", to, &operation.mark());
        }
    }
    for (key, balance) in balances {
        let found = view.number("account", key, "balance");
        if found != balance {
            return Err(format!("account {key} holds {found}, its transfers make {balance}"));
        }
    }
    Ok(())
}
