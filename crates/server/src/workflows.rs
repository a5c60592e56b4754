//! `millrace invocations`, `millrace dead-letters` and `millrace schedules`, over the public HTTP API.

use millrace_base::limits;
use millrace_client::{
    Client, ClientError, DeadLetterPage, EntityKey, Failure as FailedWork, Invocation, InvocationFilter,
    InvocationPage, JournalStep, Problem, ScheduleFilter, SchedulePage,
};
use serde::Serialize;
use serde_json::Value;

use crate::Failure;
use crate::calls::{block_on, client};
use crate::cli::{
    DeadLettersArgs, InvocationsArgs, InvocationsOrder, InvocationsOrderArgs, InvocationsRestartArgs, PageArgs,
    SchedulesArgs,
};
use crate::many_dead_letters::{self, Fate, end_all};
use crate::table::{Table, printable, time};

/// Lists workflows, shows one, sends it a signal, or steps in on some.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn invocations(args: &InvocationsArgs) -> Result<(), Failure> {
    if let Some(order) = &args.order {
        return step_in(order);
    }
    let client = client(&args.node)?;
    match &args.id {
        Some(id) => one_invocation(&client, id, args),
        None => {
            let mut page = block_on(client.invocations(&filter(args, args.page.after.as_deref())))?;
            // A node looks at so many in one page, and may have found none of them.
            while page.invocations.is_empty() && page.next.is_some() {
                page = block_on(client.invocations(&filter(args, page.next.as_deref())))?;
            }
            show(&page, &args.page, render_invocations)?;
            say_more(page.next.as_deref());
            Ok(())
        }
    }
}

fn filter<'a>(args: &'a InvocationsArgs, after: Option<&'a str>) -> InvocationFilter<'a> {
    InvocationFilter {
        app: args.app.as_deref(),
        service: args.service.as_deref(),
        key: args.key.as_deref(),
        handler: args.handler.as_deref(),
        status: args.status.as_deref(),
        after,
        limit: args.page.limit,
    }
}

/// Steps in on each workflow; tells of all that could not be reached.
fn step_in(order: &InvocationsOrder) -> Result<(), Failure> {
    let (node, ids, filter) = match order {
        InvocationsOrder::Resume(args) | InvocationsOrder::Cancel(args) | InvocationsOrder::Kill(args) => {
            let InvocationsOrderArgs { ids, app, service, key, handler, status, node } = args;
            (node, ids, [app, service, key, handler, status])
        }
        InvocationsOrder::Restart(args) => {
            let InvocationsRestartArgs { ids, app, service, key, handler, status, node, .. } = args;
            (node, ids, [app, service, key, handler, status])
        }
    };
    let client = client(node)?;
    let with_ended = matches!(order, InvocationsOrder::Restart(_));
    let ids = if ids.is_empty() { block_on(chosen(&client, filter, with_ended))? } else { ids.clone() };
    if ids.is_empty() {
        eprintln!("no such workflow is there: nothing was done");
    }
    let mut failed = 0;
    for id in &ids {
        let done = match order {
            InvocationsOrder::Resume(_) => block_on(client.resume(id)).map(|()| "goes on".to_owned()),
            InvocationsOrder::Cancel(_) => block_on(cancel(&client, id)),
            InvocationsOrder::Kill(_) => block_on(client.kill(id)).map(|()| "killed".to_owned()),
            InvocationsOrder::Restart(args) => {
                block_on(client.restart(id, args.from.as_deref(), args.on_newest)).map(|()| "begins again".to_owned())
            }
        };
        match done {
            Ok(done) => println!("{}: {done}", printable(id)),
            Err(error) => {
                eprintln!("{}: {error}", printable(id));
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} could not be done", ids.len()).into()),
    }
}

/// Cancels a workflow, and says what comes of it.
async fn cancel(client: &Client, id: &str) -> Result<String, ClientError> {
    client.cancel(id).await?;
    let found = client.invocation(id).await?;
    Ok(match found.status.as_str() {
        status @ ("succeeded" | "failed") => format!("had ended, and stays as it is: {status}"),
        _ => "will be cancelled".to_owned(),
    })
}

/// The workflows that the filter lets through and that have not ended, or all of them. The set is fixed before the first
/// one is touched.
async fn chosen(client: &Client, filter: [&Option<String>; 5], with_ended: bool) -> Result<Vec<String>, ClientError> {
    let [app, service, key, handler, status] = filter.map(Option::as_deref);
    let (mut ids, mut after) = (Vec::new(), None::<String>);
    loop {
        let filter = InvocationFilter {
            app,
            service,
            key,
            handler,
            status,
            after: after.as_deref(),
            limit: Some(limits::MOST_PAGE_ITEMS),
        };
        let page = client.invocations(&filter).await?;
        let has_ended = |found: &Invocation| matches!(found.status.as_str(), "succeeded" | "failed" | "cancelled");
        let wanted = page.invocations.into_iter().filter(|found| with_ended || !has_ended(found));
        ids.extend(wanted.map(|found| found.id));
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

fn one_invocation(client: &Client, id: &str, args: &InvocationsArgs) -> Result<(), Failure> {
    if args.cancel {
        println!("{}: {}", printable(id), block_on(cancel(client, id))?);
    } else if let Some(signal) = &args.signal {
        let (name, payload) = parse_signal(signal)?;
        block_on(client.signal(id, name, &payload, args.idempotency_key.as_deref()))?;
        println!("{}: got {}", printable(id), printable(name));
    } else {
        let found = if args.wait { block_on(client.ended_invocation(id)) } else { block_on(client.invocation(id)) };
        show(&found?, &args.page, render_invocation)?;
    }
    Ok(())
}

/// Lists dead letters, tries one or many again, or drops them.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn dead_letters(args: &DeadLettersArgs) -> Result<(), Failure> {
    let client = client(&args.node)?;
    if let Some(id) = &args.retry {
        block_on(client.retry_dead_letter(id))?;
        println!("{}: will be tried again", printable(id));
    } else if let Some(id) = &args.drop {
        block_on(client.drop_dead_letter(id))?;
        println!("{}: dropped", printable(id));
    } else if args.retry_all {
        end_all(&client, &args.filter, Fate::Retried)?;
    } else if args.drop_all {
        end_all(&client, &args.filter, Fate::Dropped)?;
    } else {
        let page = match args.waiting {
            true => block_on(client.failing_messages(args.page.after.as_deref(), args.page.limit))?,
            false => block_on(many_dead_letters::page(&client, &args.filter, &args.page))?,
        };
        show(&page, &args.page, render_dead_letters)?;
        say_more(page.next.as_deref());
    }
    Ok(())
}

/// Lists schedules, and when each is due next.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn schedules(args: &SchedulesArgs) -> Result<(), Failure> {
    let filter = ScheduleFilter {
        app: args.app.as_deref(),
        service: args.service.as_deref(),
        after: args.page.after.as_deref(),
        limit: args.page.limit,
    };
    let page = block_on(client(&args.node)?.schedules(&filter))?;
    show(&page, &args.page, render_schedules)?;
    say_more(page.next.as_deref());
    Ok(())
}

/// Prints a reply as JSON or as text.
fn show<T: Serialize>(reply: &T, page: &PageArgs, render: impl FnOnce(&T) -> String) -> Result<(), Failure> {
    if page.json {
        println!("{}", serde_json::to_string_pretty(reply)?);
    } else {
        print!("{}", render(reply));
    }
    Ok(())
}

/// Prints to standard error, so that the list can be piped.
fn say_more(next: Option<&str>) {
    if let Some(next) = next {
        eprintln!("there are more: --after {}", printable(next));
    }
}

/// Splits `NAME` or `NAME=JSON`.
fn parse_signal(text: &str) -> Result<(&str, Value), Failure> {
    let Some((name, payload)) = text.split_once('=') else {
        return Ok((text, Value::Null));
    };
    let payload = serde_json::from_str(payload)
        .map_err(|error| format!("--signal: the payload {payload:?} is not JSON (text needs quotes): {error}"))?;
    Ok((name, payload))
}

/// `app:service/key/handler`, as `millrace call` takes it.
fn target(app: &str, service: &str, key: &EntityKey, handler: &str) -> String {
    format!("{app}:{service}/{key}/{handler}")
}

fn invocation_target(invocation: &Invocation) -> Option<String> {
    let (app, service) = (invocation.app.as_deref()?, invocation.service.as_deref()?);
    Some(target(app, service, invocation.key.as_ref()?, invocation.handler.as_deref()?))
}

fn describe_error(error: &Problem) -> String {
    format!("{}: {}", error.code, error.detail)
}

/// JSON text, or its length if the node left it out.
fn describe_value(value: Option<&Value>, left_out_bytes: Option<u64>) -> Option<String> {
    match (value, left_out_bytes) {
        (Some(value), _) => Some(value.to_string()),
        (None, Some(bytes)) => Some(format!("({bytes} bytes, too many to show)")),
        (None, None) => None,
    }
}

fn render_invocations(page: &InvocationPage) -> String {
    if page.invocations.is_empty() {
        return "no workflows\n".to_owned();
    }
    let mut table = Table::new(&["ID", "STATUS", "WORKFLOW", "BEGAN", "ERROR"]);
    let last_error = |invocation: &Invocation| {
        let failed = invocation.failures.first().map(|failure| &failure.error);
        invocation.error.as_ref().or(failed).map(describe_error)
    };
    for invocation in &page.invocations {
        table.row(&[
            &invocation.id,
            &invocation.status,
            &invocation_target(invocation).unwrap_or_default(),
            &invocation.began_ms.map(time).unwrap_or_default(),
            &last_error(invocation).unwrap_or_default(),
        ]);
    }
    table.render()
}

fn render_invocation(invocation: &Invocation) -> String {
    let waits_for = invocation.waits_for.as_ref().filter(|all| !all.is_empty()).map(|all| all.join(", "));
    let facts = [
        ("id", Some(invocation.id.clone())),
        ("status", Some(invocation.status.clone())),
        ("workflow", invocation_target(invocation)),
        ("began", invocation.began_ms.map(time)),
        ("due", invocation.due_ms.map(time)),
        ("input", describe_value(invocation.input.as_ref(), invocation.input_bytes)),
        ("output", describe_value(invocation.output.as_ref(), invocation.output_bytes)),
        ("error", invocation.error.as_ref().map(describe_error)),
        ("waits for", waits_for),
    ];
    let mut text = String::new();
    for (name, fact) in facts {
        if let Some(fact) = fact {
            text.push_str(&format!("{name:<11}{}\n", printable(&fact)));
        }
    }
    if !invocation.failures.is_empty() {
        text.push('\n');
        text.push_str(&render_failures(&invocation.failures));
    }
    if let Some(journal) = invocation.journal.as_ref().filter(|journal| !journal.is_empty()) {
        text.push('\n');
        text.push_str(&render_journal(journal));
    }
    text
}

fn render_failures(failures: &[FailedWork]) -> String {
    let mut table = Table::new(&["#", "FAILED", "NAME", "ATTEMPTS", "NEXT TRY", "ERROR"]);
    for failure in failures {
        table.row(&[
            &failure.operation.to_string(),
            &failure.kind,
            &failure.name,
            &failure.attempts.to_string(),
            &failure.next_try_ms.map_or_else(|| "when resumed".to_owned(), time),
            &describe_error(&failure.error),
        ]);
    }
    table.render()
}

fn render_journal(journal: &[JournalStep]) -> String {
    let mut table = Table::new(&["#", "KIND", "NAME", "ENDED", "RESULT"]);
    for step in journal {
        let result = match &step.error {
            Some(error) => Some(format!("failed: {}", describe_error(error))),
            None => describe_value(step.output.as_ref(), step.output_bytes),
        };
        table.row(&[
            &step.operation.to_string(),
            &step.kind,
            &step.name,
            &time(step.ended_ms),
            &result.unwrap_or_default(),
        ]);
    }
    table.render()
}

fn render_dead_letters(page: &DeadLetterPage) -> String {
    if page.dead_letters.is_empty() {
        return "no dead letters\n".to_owned();
    }
    let is_waiting = page.dead_letters.iter().any(|dead_letter| dead_letter.next_try_ms.is_some());
    let next_try: &[&str] = if is_waiting { &["NEXT TRY"] } else { &[] };
    let mut table = Table::new(&[&["ID", "MESSAGE", "INPUT", "ATTEMPTS"], next_try, &["ERROR"]].concat());
    for dead_letter in &page.dead_letters {
        let mut row = vec![
            dead_letter.id.clone(),
            target(&dead_letter.app, &dead_letter.service, &dead_letter.key, &dead_letter.handler),
            describe_value(dead_letter.input.as_ref(), dead_letter.input_bytes).unwrap_or_default(),
            dead_letter.attempts.to_string(),
        ];
        row.extend(dead_letter.next_try_ms.filter(|_| is_waiting).map(time));
        row.push(dead_letter.error.as_ref().map(describe_error).unwrap_or_default());
        table.row(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table.render()
}

fn render_schedules(page: &SchedulePage) -> String {
    if page.schedules.is_empty() {
        return "no schedules\n".to_owned();
    }
    let mut table = Table::new(&["NAME", "CALLS", "CRON", "NEXT"]);
    for schedule in &page.schedules {
        table.row(&[
            &schedule.name,
            &target(&schedule.app, &schedule.service, &schedule.key, &schedule.handler),
            &schedule.cron,
            &schedule.due_ms.map(time).unwrap_or_default(),
        ]);
    }
    table.render()
}

#[cfg(test)]
#[path = "workflows_tests.rs"]
mod tests;
