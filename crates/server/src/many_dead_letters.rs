//! Many dead letters with one command: `--retry-all`, `--drop-all`, and lists of some of them.
//!
//! Promises: the set of letters is fixed before the first one is touched, and each is requested once. So the
//! command ends, even if a retried letter fails and becomes a dead letter again.

use std::collections::BTreeSet;

use millrace_base::{ErrorCode, limits};
use millrace_client::{Client, ClientError, DeadLetter, DeadLetterPage};

use crate::Failure;
use crate::calls::block_on;
use crate::cli::{DeadLetterFilterArgs, PageArgs};
use crate::table::printable;

/// The action on each letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Retried,
    Dropped,
}

/// The outcome for the whole set.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    done: usize,
    /// Letters that somebody else retried or dropped meanwhile.
    gone: usize,
    failed: usize,
    not_asked_for: usize,
}

/// Retries or drops all dead letters that the filter lets through.
///
/// # Errors
/// Why they could not be listed, or that a request for one of them failed.
pub(crate) fn end_all(client: &Client, filter: &DeadLetterFilterArgs, fate: Fate) -> Result<(), Failure> {
    // One runtime for all requests, because connections end with their runtime.
    let tally = block_on(async {
        let ids = ids_of_all(client, filter).await?;
        Ok(end_each(client, &ids, fate).await)
    })?;
    println!("{}", tally.summary(fate));
    if tally.failed == 0 {
        return Ok(());
    }
    Err("some requests failed, see above: once that is mended, run the same command again".into())
}

/// A page of matching letters. It may be short, but it is empty only at the end.
pub(crate) async fn page(
    client: &Client,
    filter: &DeadLetterFilterArgs,
    place: &PageArgs,
) -> Result<DeadLetterPage, ClientError> {
    let mut page = client.dead_letters(place.after.as_deref(), place.limit).await?;
    loop {
        page.dead_letters.retain(|dead_letter| passes(filter, dead_letter));
        if !page.dead_letters.is_empty() || page.next.is_none() {
            return Ok(page);
        }
        page = client.dead_letters(page.next.as_deref(), place.limit).await?;
    }
}

/// A set, because a letter that returns while pages are read may stand on two pages.
async fn ids_of_all(client: &Client, filter: &DeadLetterFilterArgs) -> Result<BTreeSet<String>, ClientError> {
    let mut ids = BTreeSet::new();
    let mut after = None;
    loop {
        let page = client.dead_letters(after.as_deref(), Some(limits::MOST_PAGE_ITEMS)).await?;
        let meant = page.dead_letters.into_iter().filter(|dead_letter| passes(filter, dead_letter));
        ids.extend(meant.map(|dead_letter| dead_letter.id));
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

/// One after the other: a node with so many recent failures must not get all letters back at once.
async fn end_each(client: &Client, ids: &BTreeSet<String>, fate: Fate) -> Tally {
    let mut tally = Tally::default();
    for (asked_for, id) in ids.iter().enumerate() {
        let result = match fate {
            Fate::Retried => client.retry_dead_letter(id).await,
            Fate::Dropped => client.drop_dead_letter(id).await,
        };
        let Err(error) = result else {
            tally.done += 1;
            continue;
        };
        if error.code() == Some(ErrorCode::UnknownInvocation.as_str()) {
            tally.gone += 1;
            continue;
        }
        tally.failed += 1;
        eprintln!("{}: {}", printable(id), printable(&error.to_string()));
        // A node that refuses one letter may accept the next one. A node that does not answer would cost one
        // timeout for each letter.
        if error.problem().is_none() {
            tally.not_asked_for = ids.len() - asked_for - 1;
            break;
        }
    }
    tally
}

fn passes(filter: &DeadLetterFilterArgs, dead_letter: &DeadLetter) -> bool {
    let fits = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    fits(&filter.app, &dead_letter.app)
        && fits(&filter.service, &dead_letter.service)
        && fits(&filter.handler, &dead_letter.handler)
}

impl Tally {
    /// Prints all numbers, also 0, for scripts. Only a command that stopped early says so.
    fn summary(&self, fate: Fate) -> String {
        let Self { done, gone, failed, not_asked_for } = self;
        let what = match fate {
            Fate::Retried => "will be tried again",
            Fate::Dropped => "dropped",
        };
        let rest = if *not_asked_for > 0 { format!(", {not_asked_for} not asked for") } else { String::new() };
        format!("{done} {what}, {gone} gone meanwhile, {failed} failed{rest}")
    }
}

#[cfg(test)]
#[path = "many_dead_letters_tests.rs"]
mod tests;
