//! Commands about what is deployed on a running node: call, state. And what commands to a node have in common.

use std::fmt;
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

use millrace_base::ErrorCode;
use millrace_client::{Call, Client, ClientError, ClientOptions, FieldFilter};

use crate::Failure;
use crate::cli::{BenchArgs, BenchCommand, CallArgs, NodeArgs, StateArgs};
use crate::table::printable;

pub(crate) fn client(node: &NodeArgs) -> Result<Client, Failure> {
    let options =
        ClientOptions { api_key: node.api_key.clone(), authorities: node.ca.clone(), ..ClientOptions::default() };
    let client = Client::new(&node.url, options)?;
    if client.exposes_key() {
        eprintln!(
            "warning: the API key goes to {} without TLS: whoever sees the traffic can use it. Give the node a \
             certificate, and use https://",
            printable(&node.url)
        );
    }
    Ok(client)
}

pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, future).map_err(|error| NodeError(error).into())
}

/// What a node answered, or why it could not be asked: a sentence for people, whose cause programs can look at.
#[derive(Debug)]
pub(crate) struct NodeError(pub ClientError);

impl NodeError {
    /// The code of the node's answer, if a failure is one.
    pub(crate) fn code(failure: &Failure) -> Option<&str> {
        Some(failure.downcast_ref::<Self>()?.0.problem()?.code.as_str())
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&describe(&self.0))
    }
}

impl std::error::Error for NodeError {}

/// The error as a sentence. The other members of the node's reply follow, such as the payload of an `Abort`.
fn describe(error: &ClientError) -> String {
    let mut text = error.to_string();
    if let ClientError::Connect(_) = error {
        text.push_str("\n  is the node running there? --url URL (or MILLRACE_URL) names another");
    }
    let Some(problem) = error.problem() else {
        return text;
    };
    // The type repeats the code.
    for (name, value) in problem.members.iter().filter(|(name, _)| *name != "type") {
        text.push_str(&format!("\n  {}: {}", printable(name), printable(&value.to_string())));
    }
    if problem.code == ErrorCode::AmbiguousService.as_str() {
        text.push_str("\n  on the command line: millrace call APP:service/key/handler");
    }
    text
}

/// `app:rest`, or all of it where no app is named.
fn split_app(target: &str) -> (Option<&str>, &str) {
    match target.split_once(':') {
        Some((app, rest)) if !app.contains('/') => (Some(app), rest),
        _ => (None, target),
    }
}

/// Calls a handler and prints its output.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    let (app, path) = split_app(&args.target);
    let wrong = || format!("{:?} is not service/key/handler", args.target);
    let (service, rest) = path.split_once('/').ok_or_else(wrong)?;
    let (key, handler) = rest.rsplit_once('/').ok_or_else(wrong)?;
    let input = if args.input == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        args.input.clone()
    };
    let mut request = Call::new(service, key, handler).json(input);
    if let Some(app) = app {
        request = request.app(app);
    }
    if let Some(key) = &args.idempotency_key {
        request = request.idempotency_key(key);
    }
    let client = client(&args.node)?;
    if args.send {
        let request = request.delay(std::time::Duration::from_millis(args.delay_ms));
        let request = match &args.id {
            Some(id) => request.id(id),
            None => request,
        };
        println!("{}", block_on(client.send(&request))?);
    } else {
        println!("{}", String::from_utf8_lossy(&block_on(client.call(&request))?));
    }
    Ok(())
}

/// Prints an entity's fields as one JSON object, or one field as it is stored.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn state(args: &StateArgs) -> Result<(), Failure> {
    let (app, path) = split_app(&args.target);
    let wrong = || format!("{:?} is not service/key", args.target);
    let (service, key) = path.split_once('/').ok_or_else(wrong)?;
    let client = client(&args.node)?;
    let Some(field) = &args.field else {
        let fields = FieldFilter { prefix: args.prefix.as_deref(), after: args.after.as_deref(), limit: args.limit };
        let object = block_on(client.state_page(app, service, key, &fields))?;
        println!("{}", String::from_utf8_lossy(&object));
        return Ok(());
    };
    let value = block_on(client.state(app, service, key, Some(field)))?;
    // A file gets the field and nothing else.
    let mut out = std::io::stdout();
    out.write_all(&value)?;
    if out.is_terminal() {
        println!();
    }
    Ok(())
}

/// Generates load.
pub(crate) fn bench(args: &BenchArgs) -> ExitCode {
    match &args.command {
        BenchCommand::Http(http) => millrace_loadgen::run_http(http),
        BenchCommand::S3(s3) => millrace_loadgen::s3::run_s3(s3),
    }
}

#[cfg(test)]
mod tests {
    use millrace_client::Problem;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_else_an_error_says_is_shown() {
        let problem: Problem = serde_json::from_value(json!({
            "type": "/errors/aborted", "title": "t", "status": 409, "detail": "no money", "code": "aborted",
            "payload": {"balance": 3},
        }))
        .expect("a problem");
        let text = describe(&ClientError::Problem(Box::new(problem.clone())));
        assert_eq!(text, "aborted (409): no money\n  payload: {\"balance\":3}");
        let ambiguous = Problem { code: "ambiguous-service".to_owned(), ..problem };
        assert!(describe(&ClientError::Problem(Box::new(ambiguous))).contains("APP:service/key/handler"));
        let unreached = describe(&ClientError::Connect("nobody".to_owned()));
        assert_eq!(unreached, "nobody\n  is the node running there? --url URL (or MILLRACE_URL) names another");
    }
}
