//! `millrace keys`: API keys, of a file or of a cluster.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_access::{AgreedKeys, KeyAgreement, KeyFile, Role, StoreError};
use millrace_base::ErrorCode;
use millrace_http::Front;
use millrace_io::{Clock, Random, RealClock, RealRandom};
use millrace_node::Tables;

use crate::Failure;
use crate::calls::{NodeError, block_on, client};
use crate::cli::{KeysArgs, KeysCommand, NodeArgs};
use crate::settings::key_file;

/// How often a change of a cluster's keys is made again because somebody else was quicker.
const ATTEMPTS: usize = 8;

/// Changes or lists the keys of a file, or of a cluster.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn run(args: &KeysArgs) -> Result<(), Failure> {
    match &args.url {
        Some(url) => of_cluster(args, url),
        None => of_file(args),
    }
}

fn of_file(args: &KeysArgs) -> Result<(), Failure> {
    let path = key_file(args)?;
    let is_new = !path.exists();
    let mut file = if is_new { KeyFile::default() } else { KeyFile::load(&path)? };
    let Some(token) = change(&args.command, &mut file, &path.display().to_string())? else { return Ok(()) };
    save(&file, &path)?;
    if is_new {
        eprintln!("This is the first key: a node that was started without keys asks for them after a restart.");
    }
    if !token.is_empty() {
        eprintln!("Its hash is in {}.", path.display());
    }
    show(&token);
    Ok(())
}

/// Reads a cluster's keys, changes them here, and replaces them: no secret leaves this process.
fn of_cluster(args: &KeysArgs, url: &str) -> Result<(), Failure> {
    let node = NodeArgs { url: url.to_owned(), ca: args.ca.clone(), api_key: args.api_key.clone() };
    let client = client(&node)?;
    for _ in 0..ATTEMPTS {
        let mut agreed: AgreedKeys = serde_json::from_value(block_on(client.cluster_keys())?)?;
        let is_first = agreed.version == 0;
        let Some(token) = change(&args.command, &mut agreed.keys, "the cluster")? else { return Ok(()) };
        match block_on(client.replace_cluster_keys(&serde_json::to_value(&agreed)?)) {
            Ok(()) => {
                if is_first {
                    eprintln!(
                        "This is the first key: nodes that were started without keys ask for them after a restart."
                    );
                }
                show(&token);
                return Ok(());
            }
            // Somebody else has changed the keys meanwhile.
            Err(error) if NodeError::code(&error) == Some(ErrorCode::PreconditionFailed.as_str()) => {}
            Err(error) => return Err(error),
        }
    }
    Err("others change the keys all the time: try again".into())
}

fn show(token: &str) {
    if !token.is_empty() {
        println!("{token}");
        eprintln!("This is the only time the key is shown. Send it as: Authorization: Bearer {token}");
    }
}

/// Makes a change, and gives a new key; an empty one, if none was made. `None`: there is nothing to keep.
fn change(command: &KeysCommand, file: &mut KeyFile, place: &str) -> Result<Option<String>, Failure> {
    match command {
        KeysCommand::Add { id, roles } => {
            let mut secret = [0; 32];
            RealRandom.fill(&mut secret);
            Ok(Some(file.add(id, &secret, &parse_roles(roles)?, RealClock.now())?))
        }
        KeysCommand::List => {
            for key in &file.keys {
                println!("{}\t{}", key.id, join(&key.roles));
            }
            if !file.anonymous.is_empty() {
                println!("(without a key)\t{}", join(&file.anonymous));
            }
            // The list stays empty for programs; people may have named another place than they meant.
            if file.keys.is_empty() && file.anonymous.is_empty() {
                eprintln!("no keys in {place}");
            }
            Ok(None)
        }
        KeysCommand::Remove { id } if file.remove(id) => Ok(Some(String::new())),
        KeysCommand::Remove { id } => Err(format!("there is no key {id:?} in {place}").into()),
        KeysCommand::Anonymous { roles } => {
            file.anonymous = parse_roles(roles)?.iter().map(ToString::to_string).collect();
            Ok(Some(String::new()))
        }
    }
}

/// The name of the table that holds a cluster's keys.
const TABLE: &str = "api-keys";

/// Has the nodes of a cluster agree on keys. Those that this node's directory holds are the first. A copy of the present ones
/// stays there, for the next start.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn agree(tables: &Arc<Tables>, front: &Front, path: &Path) -> Result<(), Failure> {
    if path.exists() {
        let file = KeyFile::load(path)?;
        tables.begin_with(TABLE, serde_json::to_vec(&file)?);
    }
    let kept = Arc::clone(tables);
    let agreement = KeyAgreement::new(front.keyring().cloned(), move |before, bytes| {
        kept.replace(TABLE, before, bytes.to_vec()).map_err(|error| match error.code {
            ErrorCode::PreconditionFailed => StoreError::Changed,
            _ => StoreError::Cluster(error),
        })
    });
    let (heard, path, saving) = (Arc::clone(&agreement), path.to_owned(), Arc::new(Mutex::new(0)));
    tables.watch(TABLE, move |version, bytes| match heard.hear(version, bytes) {
        Ok(file) => {
            let (path, saving) = (path.clone(), Arc::clone(&saving));
            // The core that tells of it does not wait for the disk.
            std::thread::spawn(move || save_version(&saving, version, &file, &path));
        }
        Err(error) => {
            tracing::error!(%error, "the API keys of the cluster cannot be used; those of before stay in force")
        }
    });
    front.manage_keys(agreement);
    Ok(())
}

/// Saves keys, unless later ones were saved.
fn save_version(saved: &Mutex<u64>, version: u64, file: &KeyFile, path: &Path) {
    let mut saved = saved.lock().unwrap_or_else(PoisonError::into_inner);
    if *saved >= version {
        return;
    }
    match file.save(path) {
        Ok(()) => *saved = version,
        Err(error) => tracing::warn!(%error, "the API keys of the cluster could not be saved for the next start"),
    }
}

fn save(file: &KeyFile, path: &Path) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(file.save(path)?)
}

fn join(roles: &[String]) -> String {
    roles.join(" ")
}

fn parse_roles(roles: &[String]) -> Result<Vec<Role>, Failure> {
    roles.iter().map(|role| Role::parse(role).map_err(Into::into)).collect()
}
