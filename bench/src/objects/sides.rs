//! The servers of a run: each is started on the servers' CPUs with an empty folder, and gets its users.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use millrace_loadgen::s3::{Credentials, Target};
use serde::Deserialize;
use tempfile::TempDir;

use super::{FILES, OURS};
use crate::Outcome;
use crate::server::{Kind, Server, Setup, free_address};

const REGION: &str = "us-east-1";

/// A running server.
pub struct Side {
    /// Where and as whom it is asked.
    pub target: Target,
    server: Server,
    folder: TempDir,
}

/// One user, as the server or its script prints it.
#[derive(Deserialize)]
struct User {
    access_key: String,
    secret_key: String,
}

impl User {
    fn target(self, name: &str, address: SocketAddr) -> Target {
        let Self { access_key, secret_key } = self;
        let credentials = Credentials { access_key, secret_key, region: REGION.to_owned() };
        Target { name: name.to_owned(), address, host: address.to_string(), credentials }
    }
}

impl Side {
    /// Ends the server and deletes its folder.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn stop(self) -> Outcome<()> {
        let stopped = self.server.stop();
        drop(self.folder);
        stopped
    }
}

/// Starts a server: Millrace with so many cores and this durability, or the rival whose scripts are in the folder `name`.
///
/// # Errors
/// If it is not installed or does not come up.
pub fn open(name: &str, setup: &Setup, cores: usize, durability: &'static str) -> Outcome<Side> {
    let folder = tempfile::Builder::new().prefix("millrace-bench-").tempdir_in(&setup.data);
    let folder = folder.map_err(|error| format!("cannot make a folder in {}: {error}", setup.data.display()))?;
    if name == OURS {
        let s3 = free_address()?;
        let server = Server::start_in(&Kind::Objects { durability, cores, s3 }, setup, folder.path())?;
        let target = add_user(&setup.millrace, server.address)?.target(name, s3);
        return Ok(Side { target, server, folder });
    }
    let rival = match name {
        "minio" => "minio",
        "versitygw" => "versitygw",
        FILES => FILES,
        other => return Err(format!("there is no server {other:?}; there are {OURS}, minio, versitygw and {FILES}")),
    };
    let server = Server::start_in(&Kind::Rival { folder: rival }, setup, folder.path())?;
    let target = first_user(folder.path())?.target(name, server.address);
    Ok(Side { target, server, folder })
}

/// As an operator does.
fn add_user(millrace: &Path, http: SocketAddr) -> Outcome<User> {
    let url = format!("http://{http}");
    let done = Command::new(millrace).args(["s3", "user", "add", "bench", "--url", &url]).output();
    let done = done.map_err(|error| format!("cannot run {}: {error}", millrace.display()))?;
    if !done.status.success() {
        return Err(format!("`millrace s3 user add` failed: {}", String::from_utf8_lossy(&done.stderr)));
    }
    serde_json::from_slice(&done.stdout).map_err(|error| format!("`millrace s3 user add` printed no user: {error}"))
}

fn first_user(folder: &Path) -> Outcome<User> {
    let text = std::fs::read(folder.join("users.json")).map_err(|error| format!("the rival has no users: {error}"))?;
    let users: Vec<User> = serde_json::from_slice(&text).map_err(|error| format!("users.json: {error}"))?;
    users.into_iter().next().ok_or_else(|| "users.json is empty".to_owned())
}
