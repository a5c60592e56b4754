//! Commands that deploy apps, list and remove them.

use millrace_client::Client;
use serde_json::Value;

use crate::Failure;
use crate::calls::{block_on, client};
use crate::cli::{AppsArgs, AppsCommand, DeployArgs, WorkerSignature};
use crate::table::{Table, printable};

/// Sends an app to a running node.
///
/// # Errors
/// Why the node refused it, or could not be asked.
pub(crate) fn deploy(args: &DeployArgs) -> Result<(), Failure> {
    let is_on_workers = args.worker.is_some() || args.settings.is_some();
    let deployed = if is_on_workers { deploy_worker(args)? } else { deploy_folder(args)? };
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

fn deploy_worker(args: &DeployArgs) -> Result<Value, Failure> {
    let name = args.folder.to_str().ok_or("the app's name is not text")?;
    let read = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok::<_, Failure>(text.trim().to_owned())
    };
    let secret = args.worker_secret.as_ref().map(read).transpose()?;
    let settings = args.settings.as_ref().map(read).transpose()?;
    let client = client(&args.node)?;
    let signature = args.worker_signature.map(|WorkerSignature::Ed25519| "ed25519");
    block_on(client.deploy_worker(name, args.worker.as_deref(), (secret.as_deref(), signature), settings.as_deref()))
}

/// One line for each service with its handlers, and below it one line for each route.
fn render_deployed(deployed: &Value) -> String {
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

fn word(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

fn items(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Lists apps, or removes one.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(crate) fn apps(args: &AppsArgs) -> Result<(), Failure> {
    match &args.command {
        None => list(&client(&args.node)?, args.json),
        Some(AppsCommand::Versions { app, json, node }) => {
            let apps = block_on(client(node)?.app_versions(app))?;
            if *json {
                println!("{}", serde_json::to_string_pretty(&apps)?);
            } else {
                print!("{}", render_versions(&apps));
            }
            Ok(())
        }
        Some(AppsCommand::WorkerKey { app, node }) => {
            let key = block_on(client(node)?.worker_key(app))?;
            println!("{}", word(&key["public_key"]));
            Ok(())
        }
        Some(AppsCommand::Remove { app, node }) => {
            block_on(client(node)?.remove_app(app))?;
            println!("removed {}; its state stays, and is there again when the app is", printable(app));
            Ok(())
        }
    }
}

fn list(client: &Client, as_json: bool) -> Result<(), Failure> {
    let apps = block_on(client.apps())?;
    if as_json {
        println!("{}", serde_json::to_string_pretty(&apps)?);
    } else {
        print!("{}", render_apps(&apps));
    }
    Ok(())
}

/// One line for each app.
fn render_apps(apps: &Value) -> String {
    let apps = items(apps);
    if apps.is_empty() {
        return "no apps: millrace deploy FOLDER deploys one\n".to_owned();
    }
    let mut table = Table::new(&["APP", "VERSION", "SERVICES"]);
    for app in apps {
        let services: Vec<String> = items(&app["services"]).iter().map(|service| word(&service["name"])).collect();
        table.row(&[&word(&app["name"]), &word(&app["version"]), &services.join(", ")]);
    }
    table.render()
}

/// One line for each version.
fn render_versions(apps: &Value) -> String {
    let mut table = Table::new(&["VERSION", "WORKERS", "WORKFLOWS", "UNDER WAY", ""]);
    for version in apps.as_array().iter().flat_map(|apps| apps.iter()).flat_map(|app| items(&app["versions"])) {
        let count = |name: &str| version[name].as_u64().unwrap_or(0);
        let (workflows, transactions) = (count("workflows"), count("transactions"));
        let at_least = if version["has_more_workflows"] == true { "at least " } else { "" };
        let worker = version["worker_url"].as_str().map_or_else(|| "-".to_owned(), printable);
        let note = if version["is_deployed"] == true {
            "takes calls"
        } else if workflows == 0 && transactions == 0 && at_least.is_empty() {
            "nothing runs in it at this node"
        } else {
            "replaced"
        };
        let (workflows, transactions) = (format!("{at_least}{workflows}"), transactions.to_string());
        table.row(&[&word(&version["version"]), &worker, &workflows, &transactions, note]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_says_whether_its_workers_may_stop() {
        let of = |workflows: u32, more: bool| {
            let replaced = json!({
                "version": "00aa", "is_deployed": false, "worker_url": "http://old", "workflows": workflows,
                "has_more_workflows": more, "transactions": 0,
            });
            let deployed = json!({ "version": "00ff", "is_deployed": true, "workflows": 0, "transactions": 3 });
            render_versions(&json!([{ "name": "bank", "versions": [deployed, replaced] }]))
        };
        let lines = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(&of(0, false))[1..],
            ["00ff - 0 3 takes calls", "00aa http://old 0 0 nothing runs in it at this node",]
        );
        assert_eq!(lines(&of(2, false))[2], "00aa http://old 2 0 replaced");
        assert_eq!(lines(&of(0, true))[2], "00aa http://old at least 0 0 replaced");
    }

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
    fn an_app_is_a_line_of_the_list() {
        let apps = json!([
            {"name": "shop", "version": "00ff", "services": [{"name": "cart"}, {"name": "site"}]},
            {"name": "b\u{1b}", "version": "01", "services": []},
        ]);
        let text = "APP      VERSION  SERVICES\nshop     00ff     cart, site\nb\\u{1b}  01\n";
        assert_eq!(render_apps(&apps), text);
        assert_eq!(render_apps(&json!([])), "no apps: millrace deploy FOLDER deploys one\n");
    }
}
