//! `millrace cluster init --from DATA`: a cluster that begins with what a node has that stood alone.
//!
//! The first node's directory is a copy. So DATA stays as it is until its operator deletes it, and what breaks off halfway
//! leaves nothing that a node would open: `cluster.json` is written last.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use millrace_base::limits;
use millrace_node::{DataDirectory, Member, S3_USERS_FILE, found};
use millrace_replica::NodeId;

use super::InitArgs;
use super::directory::{ClusterFile, MemberEntry};
use super::make::{
    Addresses, authority_in, check_replicas, credentials_of, entries_of, keep_result_key, make_joining, new_id,
};
use crate::Failure;
use crate::settings::KEY_FILE;

/// The node that has the data.
const FIRST: u16 = 1;

/// What a running node keeps in its directory for as long as it runs.
const OF_A_PROCESS: [&str; 2] = ["lock", "pid"];

/// Makes the directories of a cluster's nodes. The first one has all that `from` has.
///
/// # Errors
/// A sentence that says what to change; what was made until then is removed.
pub(super) fn run(args: &InitArgs, from: &Path, members: &[Addresses]) -> Result<(), Failure> {
    check_replicas(args.replicas)?;
    if members.is_empty() || members.len() > limits::REPLICAS {
        return Err(format!("a cluster begins with 1 to {} nodes", limits::REPLICAS).into());
    }
    let entries = entries_of(members)?;
    if !from.join("node.json").exists() {
        return Err(format!("{}: it is no data directory", from.display()).into());
    }
    if from.join("cluster.json").exists() {
        return Err(format!("{}: it is the directory of a cluster's node already", from.display()).into());
    }
    if is_inside(&args.data, from)? {
        let (data, from) = (args.data.display(), from.display());
        return Err(format!("{data}: it lies in {from}, which is to stay as it is: give another --data").into());
    }
    let first = args.data.join(format!("n{FIRST}"));
    for directory in entries.iter().map(|entry| args.data.join(format!("n{}", entry.node))) {
        if directory.exists() {
            return Err(format!("{}: it is there already: give another --data", directory.display()).into());
        }
    }
    // No front can be given to a cluster later.
    if members.iter().all(|member| member.s3.is_none()) && (from.join(S3_USERS_FILE).exists() || has_contents(from)?) {
        return Err(format!("{} keeps objects: give --s3, an address for each node", from.display()).into());
    }
    let authority = args.data.join("authority");
    if authority.exists() {
        return Err(format!("{}: it is there already: give another --data", authority.display()).into());
    }
    // No node may start there meanwhile, and none may run.
    let held = DataDirectory::open(from, None)?;
    let made = make_from(&args.data, from, &entries, args.replicas);
    drop(held);
    if made.is_err() {
        for path in entries.iter().map(|entry| args.data.join(format!("n{}", entry.node))).chain([authority]) {
            // What stays is no directory of a node.
            let _ = fs::remove_dir_all(path);
        }
    }
    let apps = made?;
    for entry in &entries {
        println!("{}", args.data.join(format!("n{}", entry.node)).display());
    }
    let apps = if apps.is_empty() { "no app".to_owned() } else { format!("the apps {}", apps.join(", ")) };
    eprintln!(
        "{} has what {} has, with {apps}. Apps that `serve --app` names are to be deployed. Start the node first, and do not \
         start {} again",
        first.display(),
        from.display(),
        from.display()
    );
    Ok(())
}

/// Gives the apps that are deployed.
fn make_from(data: &Path, from: &Path, entries: &[MemberEntry], replicas: u16) -> Result<Vec<String>, Failure> {
    let first = data.join(format!("n{FIRST}"));
    copy(from, &first, &OF_A_PROCESS).map_err(|error| format!("{} could not be copied: {error}", from.display()))?;
    let members: Vec<Member> = entries.iter().map(MemberEntry::to_member).collect();
    let founded = found(&first, NodeId(FIRST), &members, replicas)?;
    let (authority, id) = (data.join("authority"), new_id());
    let issuer = authority_in(&authority, &founded.secret)?;
    keep_result_key(&authority, founded.result_key)?;
    for entry in entries.iter().filter(|entry| entry.node != FIRST) {
        let directory = data.join(format!("n{}", entry.node));
        make_joining(&directory, &authority, (id, entry.node, founded.shards), entries.to_vec())?;
        if from.join(KEY_FILE).exists() {
            fs::copy(from.join(KEY_FILE), directory.join(KEY_FILE))?;
        }
    }
    let credentials = credentials_of(&issuer, id, NodeId(FIRST), &issuer.pem())?;
    ClusterFile::joined(id, FIRST, founded.shards, entries.to_vec()).write(&first, &credentials)?;
    Ok(founded.apps)
}

/// Whether a folder that may not be there yet is another one, or would lie in it.
fn is_inside(path: &Path, folder: &Path) -> io::Result<bool> {
    let folder = folder.canonicalize()?;
    let mut known = std::path::absolute(path)?;
    while !known.exists() {
        known.pop();
    }
    Ok(known.canonicalize()?.starts_with(folder))
}

/// Whether a data directory has contents of objects.
fn has_contents(from: &Path) -> io::Result<bool> {
    match fs::read_dir(from.join("bodies/files")) {
        Ok(mut files) => Ok(files.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies a folder with all that is in it but some files, durably.
fn copy(from: &Path, to: &Path, left_out: &[&str]) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_dir() {
            copy(&entry.path(), &to.join(name), &[])?;
        } else if kind.is_file() && !left_out.iter().any(|left_out| name == *left_out) {
            let copied = to.join(name);
            fs::copy(entry.path(), &copied)?;
            File::open(&copied)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}
