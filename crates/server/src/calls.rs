//! Commands that talk to a running node: call, deploy, bench.

use std::io::Read;
use std::process::ExitCode;

use millrace_client::{Call, Client, ClientOptions};

use crate::Failure;
use crate::cli::{BenchArgs, BenchCommand, CallArgs, DeployArgs, NodeArgs};

pub(crate) fn client(node: &NodeArgs) -> Result<Client, Failure> {
    let options = ClientOptions { api_key: node.api_key.clone(), ..ClientOptions::default() };
    Ok(Client::new(&node.url, options)?)
}

pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, millrace_client::ClientError>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&runtime, future)?)
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
    let folder = args.folder.canonicalize().map_err(|error| format!("{}: {error}", args.folder.display()))?;
    let folder_name = || folder.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name = args.name.clone().or_else(folder_name).ok_or("the folder has no name: give one with --name")?;
    let client = client(&args.node)?;
    let deployed = block_on(client.deploy(&name, &folder))?;
    println!("deployed {name}: {deployed}");
    Ok(())
}

/// Generates load.
pub(crate) fn bench(args: &BenchArgs) -> ExitCode {
    match &args.command {
        BenchCommand::Http(http) => millrace_client::bench::run_http(http),
    }
}
