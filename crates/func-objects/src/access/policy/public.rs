//! Whether a policy gives anything to everybody.
//!
//! S3 documents the meaning: a policy is public unless each statement that allows names fixed principals, or narrows
//! everybody by a condition with fixed values.

use super::Statement;
use super::condition::Condition;
use super::principal::Principal;

/// Whether one of the statements is public.
pub fn is_public(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| {
        let principals = &statement.principals;
        let is_everybody = principals.is_negated || principals.named.contains(&Principal::Everybody);
        statement.allows && is_everybody && !statement.conditions.iter().any(Condition::narrows)
    })
}
