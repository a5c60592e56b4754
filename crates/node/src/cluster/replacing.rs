//! Replacing a built-in app on all nodes at once, as one entry of the meta shard.
//!
//! 1. All nodes load what is to come, and close the services that would go. Nothing of it serves yet.
//! 2. The node that was asked looks whether those services have entities in any shard.
//! 3. What was loaded serves from then on, on all nodes; or all nodes forget it.
//!
//! If that node is lost in between, the leader has all nodes forget it after [`NEXT_NS`].

use std::sync::Arc;
use std::time::Duration;

use millrace_base::{Error, ErrorCode, Name};
use millrace_format::Write;
use millrace_func::App;
use millrace_guidance::{AppEntry, Guidance, NextApp};
use millrace_store::Store;
use tokio::time::{Instant, sleep};

use super::catalogue::{ask_leader, check, followed, try_out};
use super::{Change, Cluster, locked, rows};
use crate::apps::{app_of_tar, archive, version_of};
use crate::backend::CoreHandle;
use crate::built_in_apps::{refuse_if_used, replaced_meanwhile};

/// For how long something may be loaded and not serve. Whoever has asked for it is gone then.
pub(super) const NEXT_NS: u64 = 30_000_000_000;

/// For how long the end of a replacement is asked for again, while the leader changes.
const SETTLED: Duration = Duration::from_secs(10);

/// How long this node waits for what somebody else has made of the app.
const SEEN: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(20);

/// Replaces a built-in app whose version is `expected`. Serves on all nodes that are alive when this returns.
///
/// # Errors
/// `precondition-failed` if it has another version; `app-refused`; `type-in-use`; `overloaded` without a leader.
pub(crate) async fn replace(node: &CoreHandle, cluster: &Arc<Cluster>, app: App, expected: u64) -> Result<u64, Error> {
    let shared = node.shared();
    check(&shared, cluster)?;
    let (name, version) = (app.name.to_string(), version_of(&app));
    try_out(&shared, &app).await?;
    let tar = archive(&app).map_err(|error| Error::new(ErrorCode::Internal, format!("the app's files: {error}")))?;
    let expected = if expected == 0 { String::new() } else { format!("{expected:016x}") };
    let change = Change::Prepare { app: name.clone(), expected: expected.clone(), tar: tar.into() };
    let epoch = match ask_leader(cluster, change).await {
        Ok(epoch) => epoch,
        Err(error) => {
            if error.code == ErrorCode::PreconditionFailed {
                seen(cluster, &name, &expected).await;
            }
            return Err(error);
        }
    };
    let is_everywhere = followed(cluster, epoch).await;
    let next = cluster.guidance().apps.get(&name).and_then(|entry| entry.next.clone());
    let is_own = |next: &NextApp| next.content == format!("{version:016x}");
    let Some(NextApp { deployment, .. }) = next.filter(is_own) else { return Err(too_late()) };
    let going = locked(&cluster.going).get(&deployment).cloned();
    let verdict = match going {
        Some(going) if going.is_empty() => Ok(()),
        Some(going) if is_everywhere => refuse_if_used(node, &name, &going).await,
        // A node that has not closed them would go on writing.
        _ => Err(too_late()),
    };
    let settled = settle(cluster, &name, deployment, verdict.is_ok()).await;
    verdict?;
    followed(cluster, settled?).await;
    Ok(version)
}

async fn settle(cluster: &Cluster, app: &str, deployment: u32, is_taken: bool) -> Result<u64, Error> {
    let until = Instant::now() + SETTLED;
    loop {
        let settled = ask_leader(cluster, Change::Settle { app: app.to_owned(), deployment, is_taken }).await;
        match settled {
            Err(error) if error.code.is_retryable() && Instant::now() < until => sleep(LOOK * 5).await,
            settled => return settled,
        }
    }
}

/// Waits until this node has seen what somebody else has made of an app.
pub(super) async fn seen(cluster: &Cluster, app: &str, before: &str) {
    let until = Instant::now() + SEEN;
    let content = || cluster.guidance().apps.get(app).map(|entry| entry.content.clone()).unwrap_or_default();
    while content() == before && Instant::now() < until {
        sleep(LOOK).await;
    }
}

fn too_late() -> Error {
    let message = "the nodes have not loaded the change in time, and it was not made; try again";
    Error::new(ErrorCode::Overloaded, message)
}

/// Refuses what rests on another content of an app than it has.
///
/// # Errors
/// `precondition-failed`.
pub(super) fn check_expected(present: &Guidance, name: &str, expected: Option<&str>) -> Result<(), Error> {
    let content = present.apps.get(name).map_or("", |entry| &entry.content);
    if expected.is_none_or(|expected| expected == content) { Ok(()) } else { Err(replaced_meanwhile(name)) }
}

/// The leader's part of [`Change::Prepare`].
///
/// # Errors
/// `precondition-failed`; `app-refused`.
pub(super) fn prepared(
    next: &mut Guidance,
    (name, expected, tar): (&str, &str, &[u8]),
    entries: &mut Vec<Vec<Write>>,
) -> Result<(), Error> {
    Name::new(name).map_err(|error| Error::new(ErrorCode::AppRefused, error.to_string()))?;
    let content = format!("{:016x}", version_of(&app_of_tar(name, tar)?));
    check_expected(next, name, Some(expected))?;
    next.last_deployment += 1;
    let coming = NextApp { deployment: next.last_deployment, content: content.clone() };
    next.apps.entry(name.to_owned()).or_default().next = Some(coming);
    if content != expected {
        entries.extend(rows::writes_of_app(name, &content, tar));
    }
    Ok(())
}

/// The leader's part of [`Change::Settle`]. Asked again, it changes nothing.
///
/// # Errors
/// `precondition-failed` if it was given up before.
pub(super) fn settled(
    next: &mut Guidance,
    (name, deployment, is_taken): (&str, u32, bool),
    store: Option<&mut Store>,
    deletions: &mut Vec<Write>,
) -> Result<(), Error> {
    let Some(entry) = next.apps.get_mut(name) else {
        return if is_taken { Err(replaced_meanwhile(name)) } else { Ok(()) };
    };
    let Some(coming) = entry.next.take_if(|coming| coming.deployment == deployment) else {
        return if is_taken && entry.deployment != deployment { Err(replaced_meanwhile(name)) } else { Ok(()) };
    };
    let before = entry.content.clone();
    let unneeded = if is_taken {
        *entry = AppEntry { deployment, content: coming.content.clone(), version: entry.version + 1, next: None };
        before.clone()
    } else {
        coming.content.clone()
    };
    let is_kept = unneeded.is_empty() || before == coming.content;
    if let Some(store) = store.filter(|_| !is_kept) {
        deletions.extend(rows::deletions_of_app(store, name, &unneeded));
    }
    if entry.deployment == 0 && entry.next.is_none() {
        next.apps.remove(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(text: &str) -> (Vec<u8>, String) {
        let mut app = App::new(Name::new("records").expect("a name"));
        app.files.insert("registry.json".to_owned(), text.as_bytes().to_vec());
        (archive(&app).expect("a tar"), format!("{:016x}", version_of(&app)))
    }

    fn coming(guidance: &Guidance) -> Option<NextApp> {
        guidance.apps.get("records")?.next.clone()
    }

    #[test]
    fn what_rests_on_another_content_is_refused() {
        let mut guidance = Guidance::default();
        let refused = |guidance: &Guidance, expected| {
            check_expected(guidance, "bank", expected).is_err_and(|error| error.code == ErrorCode::PreconditionFailed)
        };
        assert!(refused(&guidance, Some("0f")) && !refused(&guidance, Some("")) && !refused(&guidance, None));
        guidance.apps.insert("bank".to_owned(), AppEntry { content: "0f".to_owned(), ..AppEntry::default() });
        assert!(refused(&guidance, Some("")) && !refused(&guidance, Some("0f")) && !refused(&guidance, None));
    }

    #[test]
    fn what_is_prepared_serves_once_it_is_taken() {
        let (mut guidance, mut entries) = (Guidance { last_deployment: 16, ..Guidance::default() }, Vec::new());
        let (first, content) = tar("1");
        prepared(&mut guidance, ("records", "", &first), &mut entries).expect("there was none");
        assert_eq!(coming(&guidance), Some(NextApp { deployment: 17, content: content.clone() }));
        assert_eq!((guidance.apps["records"].deployment, entries.len()), (0, 1), "its files are kept, and it waits");
        for _ in 0..2 {
            settled(&mut guidance, ("records", 17, true), None, &mut Vec::new())
                .expect("said again, it changes nothing");
            let serves = AppEntry { deployment: 17, content: content.clone(), version: 1, next: None };
            assert_eq!(guidance.apps["records"], serves);
        }
        let refused = prepared(&mut guidance, ("records", "", &tar("2").0), &mut entries);
        assert_eq!(refused.expect_err("it has a version").code, ErrorCode::PreconditionFailed);
        assert_eq!(coming(&guidance), None);
    }

    #[test]
    fn what_is_given_up_leaves_no_trace_and_is_not_taken_later() {
        let (mut guidance, mut entries) = (Guidance { last_deployment: 16, ..Guidance::default() }, Vec::new());
        prepared(&mut guidance, ("records", "", &tar("1").0), &mut entries).expect("there was none");
        settled(&mut guidance, ("records", 16, false), None, &mut Vec::new()).expect("it is another one");
        assert!(coming(&guidance).is_some());
        settled(&mut guidance, ("records", 17, false), None, &mut Vec::new()).expect("given up");
        assert!(guidance.apps.is_empty());
        let late = settled(&mut guidance, ("records", 17, true), None, &mut Vec::new());
        assert_eq!(late.expect_err("it is gone").code, ErrorCode::PreconditionFailed);
    }
}
