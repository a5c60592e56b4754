//! Commands that talk to a running node: call, deploy, bench.

use std::fmt;
use std::io::Read;
use std::process::ExitCode;

use millrace_base::ErrorCode;
use millrace_client::{Call, Client, ClientError, ClientOptions};
use serde_json::Value;

use crate::Failure;
use crate::cli::{BenchArgs, BenchCommand, CallArgs, DeployArgs, NodeArgs};
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

/// Calls a handler and prints its output.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    let (app, path) = match args.target.split_once(':') {
        Some((app, path)) if !app.contains('/') => (Some(app), path),
        _ => (None, args.target.as_str()),
    };
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

/// Sends an app to a running node.
///
/// # Errors
/// Why the node refused it, or could not be asked.
pub(crate) fn deploy(args: &DeployArgs) -> Result<(), Failure> {
    let deployed = match &args.worker {
        Some(worker) => deploy_worker(args, worker)?,
        None => deploy_folder(args)?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&deployed)?);
    } else {
        print!("{}", render_deployed(&deployed));
    }
    for warning in deployed["warnings"].as_array().into_iter().flatten() {
        eprintln!("warning: {}", printable(warning.as_str().unwrap_or_default()));
    }
    Ok(())
}

fn deploy_folder(args: &DeployArgs) -> Result<Value, Failure> {
    let folder = args.folder.canonicalize().map_err(|error| format!("{}: {error}", args.folder.display()))?;
    let folder_name = || folder.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name = args.name.clone().or_else(folder_name).ok_or("the folder has no name: give one with --name")?;
    let client = client(&args.node)?;
    block_on(client.deploy(&name, &folder))
}

fn deploy_worker(args: &DeployArgs, worker: &str) -> Result<Value, Failure> {
    let name = args.folder.to_str().ok_or("the app's name is not text")?;
    let read = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok::<_, Failure>(text.trim().to_owned())
    };
    let secret = args.worker_secret.as_ref().map(read).transpose()?;
    let client = client(&args.node)?;
    block_on(client.deploy_worker(name, worker, secret.as_deref()))
}

/// One line for each service with its handlers, and below it one line for each route.
fn render_deployed(deployed: &Value) -> String {
    let word = |value: &Value| printable(value.as_str().unwrap_or_default());
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut text = format!("deployed {}, version {}\n", word(&deployed["name"]), word(&deployed["version"]));
    for service in items(&deployed["services"]) {
        let name = word(&service["name"]);
        let handlers: Vec<String> = items(&service["handlers"])
            .iter()
            .map(|handler| match handler["kind"].as_str() {
                None | Some("transaction") => word(&handler["name"]),
                Some(kind) => format!("{} ({})", word(&handler["name"]), printable(kind)),
            })
            .collect();
        text.push_str(format!("  {name}: {}", handlers.join(", ")).trim_end());
        text.push('\n');
        for route in items(&service["routes"]) {
            text.push_str(&format!("    {} /{name}{}\n", word(&route["method"]), word(&route["path"])));
        }
    }
    text
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
    fn a_deployed_app_is_a_line_for_each_thing() {
        let deployed = json!({
            "name": "shop", "version": "00ff",
            "services": [
                {
                    "name": "cart",
                    "handlers": [{"name": "add", "kind": "transaction"}, {"name": "all", "kind": "query"}],
                    "routes": [{"method": "GET", "path": "/:id"}, {"method": "POST", "path": "/\u{1b}"}],
                },
                {"name": "site", "handlers": [], "routes": []},
            ],
        });
        let text = "deployed shop, version 00ff\n  cart: add, all (query)\n    GET /cart/:id\n    \
                    POST /cart/\\u{1b}\n  site:\n";
        assert_eq!(render_deployed(&deployed), text);
        // A node of another version may leave members out.
        assert_eq!(render_deployed(&json!({"name": "shop"})), "deployed shop, version \n");
    }

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
