//! `millrace keys`: the file of API keys.

use std::path::Path;

use millrace_access::{KeyFile, Role};
use millrace_io::{Clock, Random, RealClock, RealRandom};

use crate::Failure;
use crate::cli::{KeysArgs, KeysCommand};
use crate::settings::key_file;

/// Changes or lists the key file.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn run(args: &KeysArgs) -> Result<(), Failure> {
    let path = key_file(args)?;
    let is_new = !path.exists();
    let mut file = if is_new { KeyFile::default() } else { KeyFile::load(&path)? };
    match &args.command {
        KeysCommand::Add { id, roles } => {
            let mut secret = [0; 32];
            RealRandom.fill(&mut secret);
            let token = file.add(id, &secret, &parse_roles(roles)?, RealClock.now())?;
            save(&file, &path)?;
            if is_new {
                eprintln!("This is the first key: a node that was started without keys asks for them after a restart.");
            }
            eprintln!("Its hash is in {}.", path.display());
            println!("{token}");
            eprintln!("This is the only time the key is shown. Send it as: Authorization: Bearer {token}");
        }
        KeysCommand::List => {
            for key in &file.keys {
                println!("{}\t{}", key.id, join(&key.roles));
            }
            if !file.anonymous.is_empty() {
                println!("(without a key)\t{}", join(&file.anonymous));
            }
        }
        KeysCommand::Remove { id } => {
            if !file.remove(id) {
                return Err(format!("there is no key {id:?} in {}", path.display()).into());
            }
            save(&file, &path)?;
        }
        KeysCommand::Anonymous { roles } => {
            file.anonymous = parse_roles(roles)?.iter().map(ToString::to_string).collect();
            save(&file, &path)?;
        }
    }
    Ok(())
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
