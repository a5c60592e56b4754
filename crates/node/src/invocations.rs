//! Invocations, workflows and dead letters as fronts see them.
//!
//! Rows know apps and services by name. Whoever may not call a service is told the same of its
//! invocations as if there were none.

use bytes::Bytes;
use millrace_api::{
    DeadLetter, Failure, Intervention, Invocation, InvocationStatus, InvocationsRequest, JournalStep, Page, Permission,
    Principal, READ_HANDLER, Target, WRITE_HANDLER, WorkflowState, is_built_in,
};
use millrace_base::{Error, ErrorCode, IdempotencyKey, ShardId, UnixMillis, hex, limits};
use millrace_driver::question::{
    EndDeadLetter, Intervene, ListDeadLetters, ListFailingMessages, ListWorkflows, ReadDeadLetter, ReadInvocation,
    Signal,
};
use millrace_format::{
    DeadLetterRecord, FailureRecord, InvocationResult, JournalRow, MessageRecord, ResultState, WorkflowRecord,
};
use millrace_shard::{
    DEAD_LETTER_PREFIX, FoundInvocation, InvocationId, Listed, ListedWorkflow, Sequence, WorkflowView, dead_letter_id,
    service_fingerprint,
};

use crate::backend::CoreHandle;
use crate::records::{input_as_json, reply_as_json};

/// A filter that few pass must not keep the node busy: the page is then short, and says where the
/// next one begins.
const LOOKED_AT_IN_ONE_PAGE: usize = 2_000;

/// How long an id that its sender drew, or a caller chose, may be unknown: its message may still be on its way.
const ARRIVAL_TRIES: u32 = 40;
const ARRIVAL_MS: u64 = 25;

fn unknown(id: &str) -> Error {
    Error::new(ErrorCode::UnknownInvocation, format!("no invocation {id:?} is known"))
}

pub(crate) fn may_see(principal: &Principal, app: &str, service: &str) -> bool {
    principal.may(Permission::Admin) || principal.may(Permission::Call { app, service })
}

/// What `GET /invocations/{id}` answers; without the journal if it is not asked for.
pub(crate) async fn read(
    node: &CoreHandle,
    principal: &Principal,
    id: &str,
    has_journal: bool,
) -> Result<Invocation, Error> {
    let parsed = parse(node, id)?;
    let mut tries = 0;
    let (invocation_result, view, failures) = loop {
        let sequence = parsed.sequence;
        match node.ask(parsed.shard, ReadInvocation { sequence, has_journal }).await {
            Ok(FoundInvocation { result, workflow, failures }) => break (result, workflow, failures),
            Err(error) if error.code != ErrorCode::UnknownInvocation => return Err(error),
            Err(_) if sequence.may_be_early() && tries < ARRIVAL_TRIES => {
                tries += 1;
                tokio::time::sleep(std::time::Duration::from_millis(ARRIVAL_MS)).await;
            }
            Err(_) => return Err(unknown(id)),
        }
    };
    let is_visible = match &view {
        Some(view) => may_see(principal, &view.record.app, &view.record.service),
        None => may_see_fingerprint(node, principal, invocation_result.fingerprint),
    };
    if !is_visible {
        return Err(unknown(id));
    }
    let chosen_id = view.as_ref().and_then(|view| view.record.chosen_id.clone());
    let shown = chosen_id.unwrap_or_else(|| id.to_owned());
    let workflow = view.map(|view| {
        let WorkflowView { record, due, journal, waits_for } = *view;
        WorkflowState { journal: journal.into_iter().map(step).collect(), waits_for, ..state(record, due) }
    });
    Ok(invocation(shown, invocation_result, failures, workflow))
}

/// The result of a call that was sent holds only a fingerprint of its service.
fn may_see_fingerprint(node: &CoreHandle, principal: &Principal, fingerprint: u64) -> bool {
    principal.may(Permission::Admin)
        || node.any_service(|app, service| {
            service_fingerprint(app, service) == fingerprint && principal.may(Permission::Call { app, service })
        })
}

fn parse(node: &CoreHandle, id: &str) -> Result<InvocationId, Error> {
    InvocationId::parse(id, node.shard_count()).ok_or_else(|| unknown(id))
}

/// Refuses whoever may not see a workflow.
async fn authorise(node: &CoreHandle, principal: &Principal, id: &str) -> Result<InvocationId, Error> {
    let found = read(node, principal, id, false).await?;
    match found.workflow {
        Some(_) => parse(node, id),
        // A call that failed and waits may be given up, too.
        None if !found.failures.is_empty() && !found.status.is_end() => parse(node, id),
        None => Err(Error::new(ErrorCode::BadRequest, "this invocation is not a workflow")),
    }
}

pub(crate) async fn intervene(
    node: &CoreHandle,
    principal: &Principal,
    id: &str,
    intervention: Intervention,
) -> Result<(), Error> {
    let InvocationId { shard, sequence } = authorise(node, principal, id).await?;
    node.ask(shard, Intervene { sequence, intervention }).await
}

pub(crate) async fn signal(
    node: &CoreHandle,
    principal: &Principal,
    id: &str,
    (name, payload): (&str, Bytes),
    idempotency_key: Option<IdempotencyKey<&str>>,
) -> Result<(), Error> {
    let InvocationId { shard, sequence } = authorise(node, principal, id).await?;
    let (name, idempotency_key) = (name.into(), idempotency_key.map(IdempotencyKey::kept));
    node.ask(shard, Signal { sequence, name, payload, idempotency_key }).await
}

/// A page's place: the shard, and what came last there.
struct InvocationCursor<'a> {
    shard: ShardId,
    after: Option<&'a str>,
}

impl<'a> InvocationCursor<'a> {
    /// `{shard, four hex digits}` or `{shard}.{what came last there}`.
    fn parse(text: Option<&'a str>) -> Result<Self, Error> {
        let Some(text) = text else {
            return Ok(Self { shard: ShardId(0), after: None });
        };
        let (shard, after) = match text.split_once('.') {
            Some((shard, after)) => (shard, Some(after)),
            None => (text, None),
        };
        let shard = u16::from_str_radix(shard, 16).map_err(|_| wrong_place())?;
        Ok(Self { shard: ShardId(shard), after })
    }

    fn next(shard: ShardId, after: Option<String>) -> String {
        match after {
            Some(after) => format!("{:04x}.{after}", shard.0),
            None => format!("{:04x}", shard.0),
        }
    }
}

fn wrong_place() -> Error {
    Error::new(ErrorCode::BadRequest, "`after` is not what an earlier page gave as `next`")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// What `GET /invocations` answers: shard after shard.
pub(crate) async fn list(
    node: &CoreHandle,
    principal: &Principal,
    request: InvocationsRequest<'_>,
) -> Result<Page<Invocation>, Error> {
    let place = InvocationCursor::parse(request.after)?;
    // A workflow is on the shard of its key, or of the id that its caller chose.
    let end = node.shard_count();
    let (mut items, mut shard, mut after) = (Vec::new(), place.shard, None);
    if let Some(text) = place.after {
        let (kind, id) = text.split_at_checked(1).ok_or_else(wrong_place)?;
        let sequence = unhex(id).and_then(|bytes| Sequence::decode(&bytes)).ok_or_else(wrong_place)?;
        after = Some((kind == "e", sequence));
    }
    let is_live_only = request.status.is_some_and(|status| !status.is_end());
    let (mut looked_at, mut held_bytes) = (0, 0);
    while shard.0 < end {
        let limit = request.limit.max(1) - items.len();
        let asked = node.ask(shard, ListWorkflows { after, limit, is_live_only });
        let Listed { items: rows, has_more } = asked.await?;
        let last = rows.last().map(|row| (row.record.has_ended, row.id));
        looked_at += rows.len() + 1;
        held_bytes += rows.iter().map(ListedWorkflow::size_bytes).sum::<usize>();
        let is_full = looked_at >= LOOKED_AT_IN_ONE_PAGE || held_bytes >= limits::PAGE_BYTES;
        let is_enough = |items: usize| items >= request.limit || is_full;
        let visible = rows.into_iter().filter(|row| is_wanted(principal, &request, &row.record));
        let shown = visible.map(|ListedWorkflow { id, record, due, invocation_result, failures }| {
            let id = InvocationId { shard, sequence: id };
            let id = record.chosen_id.clone().unwrap_or_else(|| id.to_string());
            invocation(id, invocation_result, failures, Some(state(record, due)))
        });
        items.extend(shown.filter(|item| request.status.is_none_or(|status| item.status == status)));
        match last.filter(|_| has_more) {
            Some((has_ended, id)) if is_enough(items.len()) => {
                let after = format!("{}{}", if has_ended { "e" } else { "l" }, hex(&id.encode()));
                return Ok(Page { items, next: Some(InvocationCursor::next(shard, Some(after))) });
            }
            Some(last) => after = Some(last),
            None => (shard, after) = (ShardId(shard.0 + 1), None),
        }
        if is_enough(items.len()) && shard.0 < end && after.is_none() {
            return Ok(Page { items, next: Some(InvocationCursor::next(shard, None)) });
        }
        // Other requests have their turn between two looks.
        tokio::task::yield_now().await;
    }
    Ok(Page { items, next: None })
}

fn is_wanted(principal: &Principal, request: &InvocationsRequest<'_>, record: &WorkflowRecord) -> bool {
    request.app.is_none_or(|app| record.app == app)
        && request.service.is_none_or(|service| record.service == service)
        && request.key.is_none_or(|key| record.key == key)
        && request.handler.is_none_or(|handler| record.handler == handler)
        && may_see(principal, &record.app, &record.service)
}

/// What `GET /dead-letters` answers: shard after shard.
pub(crate) async fn dead_letters(
    node: &CoreHandle,
    principal: &Principal,
    is_waiting: bool,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<DeadLetter>, Error> {
    let place = InvocationCursor::parse(after)?;
    let (mut items, mut shard, mut looked_at, mut held_bytes) = (Vec::new(), place.shard, 0, 0);
    let mut after = place.after.map(|field| unhex(field).ok_or_else(wrong_place)).transpose()?;
    while shard.0 < node.shard_count() {
        let (from, left) = (after.take().map(Vec::into_boxed_slice), limit.max(1) - items.len());
        let Listed { items: rows, has_more } = match is_waiting {
            true => node.ask(shard, ListFailingMessages { after: from, limit: left }).await?,
            false => node.ask(shard, ListDeadLetters { after: from, limit: left }).await?,
        };
        let last = rows.last().map(|(field, _)| field.clone());
        looked_at += rows.len() + 1;
        held_bytes += rows.iter().map(|(_, dead_letter)| dead_letter.message.input.len()).sum::<usize>();
        let visible = rows.into_iter().filter(|(_, dead_letter)| may_see_dead_letter(principal, &dead_letter.message));
        items.extend(visible.map(|(field, record)| dead_letter(shard, &field, is_waiting, record)));
        let is_enough = items.len() >= limit || held_bytes >= limits::PAGE_BYTES || looked_at >= LOOKED_AT_IN_ONE_PAGE;
        match last.filter(|_| has_more) {
            Some(field) if is_enough => {
                return Ok(Page { items, next: Some(InvocationCursor::next(shard, Some(hex(&field)))) });
            }
            Some(field) => after = Some(field.into_vec()),
            None => shard = ShardId(shard.0 + 1),
        }
        if is_enough && shard.0 < node.shard_count() {
            return Ok(Page { items, next: Some(InvocationCursor::next(shard, None)) });
        }
    }
    Ok(Page { items, next: None })
}

fn may_see_dead_letter(principal: &Principal, message: &MessageRecord) -> bool {
    may_see(principal, &message.app, &message.service)
}

/// Retries or drops a dead letter.
pub(crate) async fn end_dead_letter(
    node: &CoreHandle,
    principal: &Principal,
    id: &str,
    is_retried: bool,
) -> Result<(), Error> {
    let missing = || Error::new(ErrorCode::UnknownInvocation, format!("no dead letter {id:?} is known"));
    let text = id.strip_prefix(DEAD_LETTER_PREFIX).ok_or_else(missing)?;
    let (shard, field) = text.split_at_checked(4).ok_or_else(missing)?;
    let shard = ShardId(u16::from_str_radix(shard, 16).map_err(|_| missing())?);
    let field = unhex(field).filter(|_| shard.0 < node.shard_count()).ok_or_else(missing)?;
    let field = field.into_boxed_slice();
    let dead_letter = match node.ask(shard, ReadDeadLetter { field: field.clone() }).await {
        Ok(dead_letter) => dead_letter,
        Err(error) if error.code == ErrorCode::UnknownInvocation => return Err(missing()),
        Err(error) => return Err(error),
    };
    if !may_see_dead_letter(principal, &dead_letter.message) {
        return Err(missing());
    }
    node.ask(shard, EndDeadLetter { field, is_retried }).await
}

fn dead_letter(shard: ShardId, field: &[u8], is_waiting: bool, dead_letter: DeadLetterRecord) -> DeadLetter {
    let MessageRecord { app, service, handler, key, input, attempts, due, .. } = dead_letter.message;
    let next_try_ms = is_waiting.then_some(due.0);
    let target = Target { app, service, key, handler };
    let id = dead_letter_id(shard, field);
    let input = if is_built_in(&target.app) { input_as_json(input) } else { input };
    DeadLetter { id, target, input, attempts, next_try_ms, error: dead_letter.error }
}

fn state(record: WorkflowRecord, due: Option<UnixMillis>) -> WorkflowState {
    let WorkflowRecord { began, app, service, handler, key, input, .. } = record;
    let target = Target { app, service, key, handler };
    let began_ms = (began > UnixMillis(0)).then_some(began.0);
    let due_ms = due.map(|due| due.0);
    WorkflowState { target, input, began_ms, due_ms, journal: Vec::new(), waits_for: Vec::new() }
}

fn step(row: JournalRow) -> JournalStep {
    let JournalRow { kind, operation, ended, name, result } = row;
    let is_of_record = name.ends_with(READ_HANDLER) || name.ends_with(WRITE_HANDLER);
    let result = if is_of_record { result.map(reply_as_json) } else { result };
    JournalStep { operation, kind: kind.as_str(), name, ended_ms: ended.0, result }
}

fn failure(record: FailureRecord) -> Failure {
    let FailureRecord { kind, operation, attempts, failed, next_try, name, error } = record;
    let next_try_ms = next_try.map(|due| due.0);
    let kind = kind.map_or("code", |kind| kind.as_str());
    Failure { operation, kind, name, attempts, failed_ms: failed.0, next_try_ms, error }
}

fn invocation(
    id: String,
    invocation_result: InvocationResult,
    failures: Vec<FailureRecord>,
    workflow: Option<WorkflowState>,
) -> Invocation {
    let has_begun = workflow.as_ref().is_some_and(|workflow| workflow.due_ms.is_none());
    let pending = match has_begun {
        true if failures.iter().any(|failure| failure.next_try.is_none()) => InvocationStatus::Paused,
        true => InvocationStatus::Running,
        false => InvocationStatus::Pending,
    };
    let (status, output, error) = match invocation_result.result {
        ResultState::Pending | ResultState::Sent(..) => (pending, None, None),
        ResultState::Value(output) => (InvocationStatus::Succeeded, Some(output), None),
        ResultState::Reply { body, .. } => (InvocationStatus::Succeeded, Some(body), None),
        ResultState::Error(error) if error.code == ErrorCode::Cancelled => {
            (InvocationStatus::Cancelled, None, Some(error))
        }
        ResultState::Error(error) => (InvocationStatus::Failed, None, Some(error)),
    };
    let failures = failures.into_iter().map(failure).collect();
    Invocation { id, status, output, error, failures, workflow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_hex_round_trip_and_refuse_nonsense() {
        assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        for text in ["0", "zz", "é"] {
            assert_eq!(unhex(text), None, "{text}");
        }
        let text = InvocationCursor::next(ShardId(17), Some("lff".into()));
        let place = InvocationCursor::parse(Some(&text)).expect("just made");
        assert_eq!((place.shard, place.after), (ShardId(17), Some("lff")));
        assert!(InvocationCursor::parse(Some("nonsense")).is_err());
    }
}
