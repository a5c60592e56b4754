//! `millrace s3`: users of S3, their access keys and the buckets, on a running node.

use clap::{Args, Subcommand};
use millrace_client::NewS3User;
use serde_json::Value;

use crate::Failure;
use crate::calls::{block_on, client};
use crate::cli::NodeArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  millrace s3 user add ann --email ann@example.com
  millrace s3 user list
  millrace s3 key add ann
  millrace s3 key revoke ann AKIA2Q3W5E7R2T4Y6U2I
  millrace s3 user remove ann
  millrace s3 bucket list --user ann
  millrace s3 bucket usage photos
  millrace s3 bucket quota photos 10000000000
  millrace s3 bucket app photos gallery
  millrace s3 bucket slices events 4";

#[derive(Args, Debug)]
pub(crate) struct S3Args {
    #[command(subcommand)]
    pub command: S3Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum S3Command {
    /// Make, list and remove users
    #[command(subcommand)]
    User(UserCommand),
    /// Make, list and revoke access keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// List buckets, show what is in them, bound them
    #[command(subcommand)]
    Bucket(BucketCommand),
}

/// A key that the caller chooses.
#[derive(Args, Debug)]
pub(crate) struct ChosenKey {
    /// The access key, with --secret-key [default: a random one]
    #[arg(long, value_name = "KEY", requires = "secret_key")]
    pub access_key: Option<String>,
    /// The secret key, with --access-key
    #[arg(long, value_name = "SECRET", requires = "access_key")]
    pub secret_key: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum UserCommand {
    /// Make a user with an access key, and print both as JSON; the secret is shown this once
    Add {
        /// The name, which others see
        name: String,
        /// An e-mail address, by which access lists may name the user
        #[arg(long)]
        email: Option<String>,
        #[command(flatten)]
        key: ChosenKey,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// List users with their access keys, one JSON object a line
    List {
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Remove a user and their access keys; what the user owns stays
    Remove {
        /// Name or canonical id
        user: String,
        #[command(flatten)]
        node: NodeArgs,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// Make one more access key, and print it as JSON; the secret is shown this once
    Add {
        /// Name or canonical id
        user: String,
        #[command(flatten)]
        key: ChosenKey,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// List a user's access keys, one JSON object a line
    List {
        /// Name or canonical id
        user: String,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Revoke an access key for good
    Revoke {
        /// Name or canonical id
        user: String,
        /// Which
        access_key: String,
        #[command(flatten)]
        node: NodeArgs,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum BucketCommand {
    /// List the buckets of all users, one JSON object a line
    List {
        /// Only those of this user: name or canonical id
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Print a bucket's owner, objects, bytes and quota as JSON
    Usage {
        /// Which
        bucket: String,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Give a bucket to an app, whose functions may use it then, or print the app as JSON
    App {
        /// Which
        bucket: String,
        /// The app's name, or none
        app: Option<String>,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Spread an empty bucket over slices on different cores, or print their number as JSON
    Slices {
        /// Which
        bucket: String,
        /// 1 to 16: for a bucket that takes more writes than one core can do
        slices: Option<u16>,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Set how many bytes a bucket may hold, or print it as JSON
    Quota {
        /// Which
        bucket: String,
        /// Bytes, or none
        quota: Option<String>,
        #[command(flatten)]
        node: NodeArgs,
    },
}

/// Asks the node, and prints what it answers.
///
/// # Errors
/// Why the node refused, or could not be asked.
pub(crate) fn run(args: &S3Args) -> Result<(), Failure> {
    match &args.command {
        S3Command::User(command) => user(command),
        S3Command::Key(command) => key(command),
        S3Command::Bucket(command) => bucket(command),
    }
}

fn bucket(command: &BucketCommand) -> Result<(), Failure> {
    match command {
        BucketCommand::List { user, node } => {
            let buckets = block_on(client(node)?.s3_buckets())?;
            let is_of = |bucket: &&Value, user: &str| bucket["owner"] == user || bucket["owner_name"] == user;
            let all = buckets["buckets"].as_array().into_iter().flatten();
            for bucket in all.filter(|bucket| user.as_ref().is_none_or(|user| is_of(bucket, user))) {
                println!("{bucket}");
            }
        }
        BucketCommand::Usage { bucket, node } => println!("{}", block_on(client(node)?.s3_bucket(bucket))?),
        BucketCommand::App { bucket, app: None, node } => {
            let usage = block_on(client(node)?.s3_bucket(bucket))?;
            println!("{}", serde_json::json!({ "name": usage["name"], "app": usage["app"] }));
        }
        BucketCommand::App { bucket, app: Some(app), node } => {
            block_on(client(node)?.set_s3_app(bucket, Some(app.as_str()).filter(|app| *app != "none")))?;
        }
        BucketCommand::Slices { bucket, slices: None, node } => {
            let usage = block_on(client(node)?.s3_bucket(bucket))?;
            println!("{}", serde_json::json!({ "name": usage["name"], "slices": usage["slices"] }));
        }
        BucketCommand::Slices { bucket, slices: Some(slices), node } => {
            block_on(client(node)?.set_s3_slices(bucket, *slices))?;
        }
        BucketCommand::Quota { bucket, quota: None, node } => {
            let usage = block_on(client(node)?.s3_bucket(bucket))?;
            println!("{}", serde_json::json!({ "name": usage["name"], "quota_bytes": usage["quota_bytes"] }));
        }
        BucketCommand::Quota { bucket, quota: Some(quota), node } => {
            let quota_bytes = match quota.as_str() {
                "none" => None,
                bytes => {
                    Some(bytes.parse().map_err(|_| format!("a quota is a number of bytes or none, not {bytes:?}"))?)
                }
            };
            block_on(client(node)?.set_s3_quota(bucket, quota_bytes))?;
        }
    }
    Ok(())
}

fn user(command: &UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { name, email, key, node } => {
            let new = NewS3User {
                name,
                email: email.as_deref(),
                access_key: key.access_key.as_deref(),
                secret_key: key.secret_key.as_deref(),
            };
            println!("{}", block_on(client(node)?.add_s3_user(&new))?);
        }
        UserCommand::List { node } => print_items(&block_on(client(node)?.s3_users())?["users"]),
        UserCommand::Remove { user, node } => block_on(client(node)?.remove_s3_user(user))?,
    }
    Ok(())
}

fn key(command: &KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Add { user, key, node } => {
            let (access_key, secret_key) = (key.access_key.as_deref(), key.secret_key.as_deref());
            println!("{}", block_on(client(node)?.add_s3_key(user, access_key, secret_key))?);
        }
        KeyCommand::List { user, node } => print_items(&block_on(client(node)?.s3_keys(user))?["keys"]),
        KeyCommand::Revoke { user, access_key, node } => block_on(client(node)?.revoke_s3_key(user, access_key))?,
    }
    Ok(())
}

fn print_items(list: &Value) {
    for item in list.as_array().into_iter().flatten() {
        println!("{item}");
    }
}
