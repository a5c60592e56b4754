//! Operations that look after what runs by itself: workflows, dead letters and schedules.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use millrace_api::{Intervention, Invocations, InvocationsRequest, Object, Principal, SchedulesRequest};
use millrace_base::{Error, ErrorCode, limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::handle::{Input, Reply, Session};
use crate::operations::Parameter;
use crate::{listing, path, reply};

/// Bytes of a parser's message that are shown: it may quote what it met.
const SHOWN_CHARACTERS: usize = 200;

/// How long after an invocation had not ended it is looked at again: at first, and at most. Twice as long each time,
/// so whoever waits for long costs two looks a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// `GET /invocations/{id}`.
pub(crate) async fn invocation<B: Invocations>(session: &Session<B>, who: &Principal, input: Input<'_>) -> Reply {
    let id = input.name(Parameter::Id)?;
    let wait = path::wait(input.query())?;
    if !wait.is_zero() {
        wait_for_end(session, who, &id, wait).await?;
    }
    listing::invocation(&session.backend.invocation(who, &id, true).await?)
}

/// Comes back once an invocation has ended, or `longest` is over, or the server is about to stop.
async fn wait_for_end<B: Invocations>(
    session: &Session<B>,
    who: &Principal,
    id: &str,
    longest: Duration,
) -> Result<(), Error> {
    let end = Instant::now() + longest;
    let mut pause = SHORTEST_PAUSE;
    while !session.backend.invocation(who, id, false).await?.status.is_end() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || session.state.local.is_draining() {
            return Ok(());
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// `GET /invocations`.
pub(crate) async fn invocations<B: Invocations>(backend: &B, who: &Principal, query: Option<&str>) -> Reply {
    let (app, service) = (path::name_parameter(query, "app")?, path::name_parameter(query, "service")?);
    let (key, handler) = (path::key_parameter(query)?, path::name_parameter(query, "handler")?);
    let after = path::page_after(query)?;
    let request = InvocationsRequest {
        app: app.as_deref(),
        service: service.as_deref(),
        key: key.as_deref(),
        handler: handler.as_deref(),
        status: path::invocation_status(query)?,
        after: after.as_deref(),
        limit: path::page_items(query)?,
    };
    listing::invocations(&backend.invocations(who, request).await?)
}

/// `POST /invocations/{id}/cancel`, `…/kill` and `…/resume`.
pub(crate) async fn intervene<B: Invocations>(
    backend: &B,
    who: &Principal,
    input: Input<'_>,
    intervention: Intervention,
) -> Reply {
    backend.intervene(who, &input.name(Parameter::Id)?, intervention).await?;
    Ok(reply::empty(StatusCode::ACCEPTED))
}

/// `POST /invocations/{id}/signal`.
pub(crate) async fn signal<B: Invocations>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Reply {
    let id = input.name(Parameter::Id)?;
    let body = input.body(&session.state).await?;
    let (name, payload) = read_signal(&body)?;
    session.backend.signal(who, &id, &name, payload, input.idempotency_key()?).await?;
    Ok(reply::empty(StatusCode::ACCEPTED))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signal<'a> {
    name: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// Name and payload of a signal's body.
fn read_signal(body: &Bytes) -> Result<(String, Bytes), Error> {
    let Object::<Signal<'_>>(signal) = serde_json::from_slice(body).map_err(|error| {
        let code = if error.is_data() { ErrorCode::BadRequest } else { ErrorCode::InvalidInput };
        let why: String = error.to_string().chars().take(SHOWN_CHARACTERS).collect();
        Error::new(code, format!(r#"a signal is sent as {{"name": "…", "payload": …}}: {why}"#))
    })?;
    let limit = limits::STEP_NAME_BYTES;
    if signal.name.is_empty() || signal.name.len() > limit {
        let message = format!("the signal's name has {} bytes; it must have 1 to {limit}", signal.name.len());
        return Err(Error::new(ErrorCode::BadRequest, message));
    }
    let payload =
        signal.payload.map_or(Bytes::from_static(b"null"), |payload| body.slice_ref(payload.get().as_bytes()));
    Ok((signal.name, payload))
}

/// `GET /dead-letters`.
pub(crate) async fn dead_letters<B: Invocations>(backend: &B, who: &Principal, query: Option<&str>) -> Reply {
    let after = path::page_after(query)?;
    let limit = path::page_items(query)?;
    let is_waiting = path::is_waiting(query)?;
    listing::dead_letters(&backend.dead_letters(who, is_waiting, after.as_deref(), limit).await?)
}

/// `POST /dead-letters/{id}/retry`.
pub(crate) async fn retry_dead_letter<B: Invocations>(backend: &B, who: &Principal, input: Input<'_>) -> Reply {
    backend.retry_dead_letter(who, &input.name(Parameter::Id)?).await?;
    Ok(reply::empty(StatusCode::ACCEPTED))
}

/// `DELETE /dead-letters/{id}`.
pub(crate) async fn drop_dead_letter<B: Invocations>(backend: &B, who: &Principal, input: Input<'_>) -> Reply {
    backend.drop_dead_letter(who, &input.name(Parameter::Id)?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// `GET /schedules`.
pub(crate) async fn schedules<B: Invocations>(backend: &B, who: &Principal, query: Option<&str>) -> Reply {
    let (app, service) = (path::name_parameter(query, "app")?, path::name_parameter(query, "service")?);
    let after = path::page_after(query)?;
    let request = SchedulesRequest {
        app: app.as_deref(),
        service: service.as_deref(),
        after: after.as_deref(),
        limit: path::page_items(query)?,
    };
    listing::schedules(&backend.schedules(who, request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_name_and_any_json() {
        for (body, name, payload) in [
            (r#"{"name":"paid","payload":{"by": "ann"}}"#, "paid", r#"{"by": "ann"}"#),
            (r#" { "payload" : [1,2] , "name" : "\u0061" } "#, "a", "[1,2]"),
            (r#"{"name":"paid","payload":null}"#, "paid", "null"),
            (r#"{"name":"paid"}"#, "paid", "null"),
            (r#"{"name":"paid","payload":12345678901234567890123}"#, "paid", "12345678901234567890123"),
        ] {
            let (read_name, read_payload) = read_signal(&Bytes::from(body)).expect(body);
            assert_eq!((read_name.as_str(), &read_payload[..]), (name, payload.as_bytes()));
        }
    }

    #[test]
    fn what_is_no_signal_is_refused_with_the_reason() {
        let long = format!(r#"{{"name":"{}"}}"#, "n".repeat(limits::STEP_NAME_BYTES + 1));
        let quoted = format!(r#"{{"name":{{}},"{}":1}}"#, "x".repeat(100_000));
        for (body, code, words) in [
            ("", ErrorCode::InvalidInput, "EOF"),
            ("{", ErrorCode::InvalidInput, "EOF"),
            ("paid", ErrorCode::InvalidInput, "column 1"),
            (r#"{"name":"paid"} x"#, ErrorCode::InvalidInput, "trailing"),
            ("{\"name\":\"\u{1}\"}", ErrorCode::InvalidInput, "control character"),
            (r#"{"name":"paid","payload":01}"#, ErrorCode::InvalidInput, "number"),
            (r#""paid""#, ErrorCode::BadRequest, "invalid type"),
            (r#"["paid"]"#, ErrorCode::BadRequest, "expected an object"),
            ("{}", ErrorCode::BadRequest, "missing field `name`"),
            (r#"{"name":7}"#, ErrorCode::BadRequest, "invalid type"),
            (r#"{"name":""}"#, ErrorCode::BadRequest, "0 bytes"),
            (r#"{"name":"a","payloads":1}"#, ErrorCode::BadRequest, "unknown field `payloads`"),
            (r#"{"name":"a","name":"b"}"#, ErrorCode::BadRequest, "duplicate field `name`"),
            (&long, ErrorCode::BadRequest, "257 bytes"),
            (&quoted, ErrorCode::BadRequest, "invalid type"),
        ] {
            let error = read_signal(&Bytes::from(body.to_owned())).expect_err(body);
            assert_eq!(error.code, code, "{body}: {error}");
            assert!(error.message.contains(words), "{body}: {error}");
            assert!(error.message.len() < 1000);
        }
        assert!(read_signal(&Bytes::from_static(b"{\"name\":\"\xff\"}")).is_err());
    }
}
