//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::backup;
use crate::cluster;
use crate::s3;
use crate::settings_file::{DurabilityName, SettingsFile, parse_address, parse_switch, with_settings};

/// A stateful application server: it runs your functions inside the store that holds their data.
///
/// Every call is a serializable transaction, takes effect exactly once with an Idempotency-Key,
/// and is durable before it is answered.
#[derive(Parser)]
#[command(name = "millrace", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a node
    ///
    /// Serves apps from folders (--app) and those deployed earlier, over HTTP. Settings come from
    /// flags, then the environment, then the file given with --config. SIGTERM and Ctrl-C drain
    /// and stop; kill -9 is safe.
    Serve(ServeArgs),
    /// Run a node for development: reload apps when their files change, print each call from outside
    ///
    /// With a file of services in Python it also runs their worker, with the active environment's Python.
    #[command(after_help = DEV_EXAMPLES)]
    Dev(DevArgs),
    /// Call a handler
    ///
    /// The target is written as it is, and not as in a URL: nothing in it is percent-encoded. The key is all between
    /// the first slash and the last one, so that it may hold slashes: link/k/z/info calls the handler info of the
    /// entity "k/z", which in a URL is /call/link/k%2Fz/info.
    ///
    /// A service that several apps have is called by its app: app:service/key/handler.
    #[command(after_help = CALL_EXAMPLES)]
    Call(CallArgs),
    /// Read an entity's fields, as JSON
    ///
    /// What is committed and durable is shown. With FIELD: that field alone, as it is stored. The target is written as for
    /// `millrace call`, without a handler.
    #[command(after_help = STATE_EXAMPLES)]
    State(StateArgs),
    /// List workflows, look at one, cancel it, send it a signal
    ///
    /// Without an ID: the workflows that the API key may see, by shard; there those that have not ended
    /// first, each in the order of their ids. With one: what became of it, and its journal, which is what it
    /// has done so far.
    #[command(after_help = INVOCATIONS_EXAMPLES)]
    Invocations(InvocationsArgs),
    /// List messages that failed too often, try them again, drop them
    ///
    /// A message that failed 16 times is set aside as a dead letter, until somebody looks at it. Mend what
    /// made it fail, then retry it: it gets 16 new attempts. One that fails again is a dead letter once more.
    ///
    /// --retry-all and --drop-all first take down which letters there are, and then ask for each of them once;
    /// what becomes a dead letter meanwhile is left for the next time. They say how many were retried or
    /// dropped, and how many somebody else had taken away. What is refused is printed, and the rest goes on; if the
    /// node gives no answer, they stop. In both cases the exit code is 1.
    #[command(after_help = DEAD_LETTERS_EXAMPLES)]
    DeadLetters(DeadLettersArgs),
    /// List what deployed services declare to be called at certain times, and when each is due next
    ///
    /// Those of the services that the API key may call, by app, service and name. Times are UTC.
    #[command(after_help = SCHEDULES_EXAMPLES)]
    Schedules(SchedulesArgs),
    /// Make, try and look at a cluster of nodes
    #[command(after_help = cluster::EXAMPLES)]
    Cluster(cluster::ClusterArgs),
    /// Send an app's folder to a running node
    Deploy(DeployArgs),
    /// List deployed apps, or remove one
    ///
    /// A removed app takes no more calls. Its state stays, and is there again when the app is deployed again. An earlier
    /// version comes back when its folder is deployed again.
    #[command(after_help = APPS_EXAMPLES)]
    Apps(AppsArgs),
    /// Make, list and revoke API keys
    ///
    /// Looks for the file of keys where `millrace serve` with the same --config, --data and --keys (or the same
    /// environment) does: keys.json in the data directory, unless told otherwise.
    #[command(after_help = KEYS_EXAMPLES)]
    Keys(KeysArgs),
    /// Users of S3, their access keys, and the buckets of all of them, on a running node
    ///
    /// Needs an API key with the role admin, where the node has keys.
    #[command(after_help = s3::EXAMPLES)]
    S3(s3::S3Args),
    /// Back up a running node into a folder or a bucket, list backups, check them, give up old ones
    ///
    /// The node goes on serving. The backup shows one moment after the command began. Only what the folder does not hold
    /// yet is written. Needs an API key with the role admin, where the node has keys.
    #[command(after_help = backup::BACKUP_EXAMPLES)]
    Backup(backup::BackupArgs),
    /// Make a data directory of a backup
    ///
    /// Every hash is compared. Whatever goes wrong, the directory is left as empty as it was. Then start a node on it.
    #[command(after_help = backup::RESTORE_EXAMPLES)]
    Restore(backup::RestoreArgs),
    /// Show what a data directory's log holds, and what is wrong with it
    ///
    /// The node must be stopped. Shows the log's segments with their counts of entries, and damage, if there is any.
    /// Shows the positions in the log up to which the checkpoint has the shards' state. With --entries, shows every entry
    /// of the log as well: those since the checkpoint, and some before. State that only the checkpoint has is not shown.
    Inspect(InspectArgs),
    /// Make a damaged log usable again, giving up what cannot be read
    Repair(RepairArgs),
    /// Write millrace.d.ts, the types of the programming model, for editors and tsc
    Types(TypesArgs),
    /// Check that a running worker keeps the worker protocol
    ///
    /// The worker has to serve the check handlers, as `python -m millrace.check` does. Each case that it fails is
    /// printed with what was expected; the exit code is then 1.
    #[command(after_help = WORKER_CHECK_EXAMPLES)]
    WorkerCheck(WorkerCheckArgs),
    /// Generate load and measure
    Bench(BenchArgs),
}

const DEV_EXAMPLES: &str = "\
Examples:
  millrace dev --app examples/counter
  millrace dev bank.py";

const CALL_EXAMPLES: &str = "\
Examples:
  millrace call account/alice/deposit 10
  millrace call bank:account/alice/balance
  millrace call account/alice/deposit - --idempotency-key 5f1c < input.json";

const STATE_EXAMPLES: &str = "\
Examples:
  millrace state account/alice
  millrace state bank:account/alice balance
  millrace state account/alice --prefix 2026- --limit 100";

const APPS_EXAMPLES: &str = "\
Examples:
  millrace apps
  millrace apps --json
  millrace apps remove shop";

const INVOCATIONS_EXAMPLES: &str = "\
Examples:
  millrace invocations --service trip --status running
  millrace invocations ID
  millrace invocations ID --signal confirmed
  millrace invocations ID --signal 'approved={\"by\":\"ann\"}' --idempotency-key 5f1c
  millrace invocations ID --cancel
  millrace invocations --status paused
  millrace invocations resume ID ID
  millrace invocations resume --service trip --status paused
  millrace invocations kill ID";

const DEAD_LETTERS_EXAMPLES: &str = "\
Examples:
  millrace dead-letters
  millrace dead-letters --retry ID
  millrace dead-letters --drop ID
  millrace dead-letters --service mail --handler deliver
  millrace dead-letters --service mail --handler deliver --retry-all
  millrace dead-letters --app shop --drop-all";

const SCHEDULES_EXAMPLES: &str = "\
Examples:
  millrace schedules
  millrace schedules --app shop --json";

const KEYS_EXAMPLES: &str = "\
Examples:
  millrace keys --data /var/lib/millrace add --role admin ann
  millrace keys --data /var/lib/millrace add --role deploy --role call:shop/cart ci-1
  millrace keys --data /var/lib/millrace anonymous --role call:shop/login
  millrace keys --data /var/lib/millrace list";

const WORKER_CHECK_EXAMPLES: &str = "\
Examples:
  millrace worker-check http://127.0.0.1:8081
  millrace worker-check http://127.0.0.1:8081 --secret-file secret --only replay/
  millrace worker-check --list";

impl ValueEnum for DurabilityName {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Fsync, Self::Os, Self::None]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Fsync => ("fsync", "A power cut"),
            Self::Os => ("os", "A killed process, but not a power cut: loses what the kernel had not written"),
            Self::None => ("none", "Only a clean stop: keeps no log"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// A value that one layer of the settings may leave to the layer below it.
trait Layered {
    fn over(self, below: Self) -> Self;
}

impl<T> Layered for Option<T> {
    fn over(self, below: Self) -> Self {
        self.or(below)
    }
}

impl<T> Layered for Vec<T> {
    fn over(self, below: Self) -> Self {
        if self.is_empty() { below } else { self }
    }
}

macro_rules! declare_flags {
    ($({
        $name:ident: $type:ty, $variable:literal, $value:literal, $(default $default:literal,)?
        $help:literal, guide $guide:literal $(, arg($($arg:tt)*))? $(, file($($file:tt)*))?
    })*) => {
        #[derive(Args, Clone, Debug, Default)]
        pub(crate) struct ServeArgs {
            /// A TOML file with any of these settings (names as the flags, with _ for -)
            #[arg(long, value_name = "FILE", env = "MILLRACE_CONFIG")]
            pub config: Option<PathBuf>,
            $(
                #[arg(
                    long,
                    value_name = $value,
                    env = $variable,
                    help = concat!($help $(, " [default: ", $default, "]")?)
                    $(, $($arg)*)?
                )]
                pub $name: $type,
            )*
        }

        impl ServeArgs {
            /// What flags and variables say, and the file where they are silent.
            pub(crate) fn over(&self, file: SettingsFile) -> SettingsFile {
                SettingsFile { $($name: self.$name.clone().over(file.$name),)* }
            }
        }
    };
}

with_settings!(declare_flags);

#[derive(Args, Clone, Debug)]
pub(crate) struct DevArgs {
    /// A file with services in Python
    #[arg(value_name = "FILE.py")]
    pub python: Option<PathBuf>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// How to reach a running node.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// The node's address; https://… for a node with TLS
    #[arg(long, value_name = "URL", env = "MILLRACE_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// For https: trust the certificate authorities in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", env = "MILLRACE_CA")]
    pub ca: Option<PathBuf>,
    /// An API key
    #[arg(long, value_name = "KEY", env = "MILLRACE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CallArgs {
    /// What to call: service/key/handler, or app:service/key/handler; nothing in it is percent-encoded
    pub target: String,
    /// The input, JSON; "-" reads standard input
    #[arg(default_value = "null")]
    pub input: String,
    /// Makes the call take effect once however often it is sent
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Only enqueue the call, and print its invocation id
    #[arg(long)]
    pub send: bool,
    /// With --send: how long to wait before it runs, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, requires = "send")]
    pub delay_ms: u64,
    /// With --send: the id that the workflow is to have; one that has been started with it is not started again
    #[arg(long, value_name = "ID", requires = "send")]
    pub id: Option<String>,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct InvocationsArgs {
    #[command(subcommand)]
    pub order: Option<InvocationsOrder>,
    /// The one to look at, as printed by `millrace call --send` and by the list
    pub id: Option<String>,
    /// Show it once it has ended
    #[arg(long, requires = "id", conflicts_with_all = ["cancel", "signal"])]
    pub wait: bool,
    /// Cancel it: it goes no further, undoes what it said how to undo, and ends
    #[arg(long, requires = "id", conflicts_with_all = ["signal", "json"])]
    pub cancel: bool,
    /// Send it a signal; the payload is JSON (text needs quotes), null when left out
    #[arg(long, value_name = "NAME[=JSON]", requires = "id", conflicts_with = "json")]
    pub signal: Option<String>,
    /// With --signal: makes it count once however often it is sent
    #[arg(long, value_name = "KEY", requires = "signal")]
    pub idempotency_key: Option<String>,
    /// List only this app's
    #[arg(long, conflicts_with = "id")]
    pub app: Option<String>,
    /// List only this service's
    #[arg(long, conflicts_with = "id")]
    pub service: Option<String>,
    /// List only those of entities with this key
    #[arg(long, conflicts_with = "id")]
    pub key: Option<String>,
    /// List only this handler's
    #[arg(long, conflicts_with = "id")]
    pub handler: Option<String>,
    /// List only those that are pending, running, paused, succeeded, failed or cancelled
    #[arg(long, conflicts_with = "id")]
    pub status: Option<String>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum InvocationsOrder {
    /// Try again now what failed, from the first attempt
    Resume(InvocationsOrderArgs),
    /// Undo what they said how to undo, and end
    Cancel(InvocationsOrderArgs),
    /// End at once; nothing is undone
    Kill(InvocationsOrderArgs),
    /// Begin again, from the beginning or from a step; those that run first have to be cancelled
    Restart(InvocationsRestartArgs),
}

#[derive(Args, Debug)]
pub(crate) struct InvocationsRestartArgs {
    /// The workflows, as printed by `millrace call --send` and by the list
    #[arg(required_unless_present = "status", value_name = "ID")]
    pub ids: Vec<String>,
    /// Keep the journal before the first step of this name, as `millrace invocations ID` shows it
    #[arg(long, value_name = "STEP")]
    pub from: Option<String>,
    /// Run in the newest version of the app, rather than in the one it began with
    #[arg(long)]
    pub on_newest: bool,
    /// Only this app's
    #[arg(long, requires = "status")]
    pub app: Option<String>,
    /// Only this service's
    #[arg(long, requires = "status")]
    pub service: Option<String>,
    /// Only those of entities with this key
    #[arg(long, requires = "status")]
    pub key: Option<String>,
    /// Only this handler's
    #[arg(long, requires = "status")]
    pub handler: Option<String>,
    /// All with this status: paused, failed, cancelled or succeeded
    #[arg(long, conflicts_with = "ids", value_parser = ["paused", "failed", "cancelled", "succeeded"])]
    pub status: Option<String>,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InvocationsOrderArgs {
    /// The workflows, as printed by `millrace call --send` and by the list
    #[arg(required_unless_present_any = ["app", "service", "key", "handler", "status"], value_name = "ID")]
    pub ids: Vec<String>,
    /// All of this app's that have not ended
    #[arg(long, conflicts_with = "ids")]
    pub app: Option<String>,
    /// All of this service's that have not ended
    #[arg(long, conflicts_with = "ids")]
    pub service: Option<String>,
    /// All of entities with this key that have not ended
    #[arg(long, conflicts_with = "ids")]
    pub key: Option<String>,
    /// All of this handler's that have not ended
    #[arg(long, conflicts_with = "ids")]
    pub handler: Option<String>,
    /// All with this status: paused, running or pending
    #[arg(long, conflicts_with = "ids", value_parser = ["paused", "running", "pending"])]
    pub status: Option<String>,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which to drop").args(["app", "service", "handler", "yes"]).multiple(true)))]
pub(crate) struct DeadLettersArgs {
    /// Try this one again, from its first attempt
    #[arg(long, value_name = "ID", conflicts_with_all = ["drop", "json"])]
    pub retry: Option<String>,
    /// Drop this one for good
    #[arg(long, value_name = "ID", conflicts_with = "json")]
    pub drop: Option<String>,
    /// List those that failed and are tried again instead; --retry tries one of them at once, --drop cancels it
    #[arg(long, conflicts_with_all = ["retry", "drop", "retry_all", "drop_all", "app", "service", "handler"])]
    pub waiting: bool,
    /// Try all again, or those that --app, --service and --handler choose; each once
    #[arg(long, conflicts_with_all = ["retry", "drop", "drop_all", "json", "limit", "after"])]
    pub retry_all: bool,
    /// Drop those for good that --app, --service and --handler choose, or with --yes all there are
    #[arg(long, requires = "which to drop", conflicts_with_all = ["retry", "drop", "json", "limit", "after"])]
    pub drop_all: bool,
    /// With --drop-all and no choice: yes, every dead letter there is
    #[arg(long, requires = "drop_all", conflicts_with_all = ["retry", "drop", "retry_all"])]
    pub yes: bool,
    #[command(flatten)]
    pub filter: DeadLetterFilterArgs,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Which dead letters are listed, or retried or dropped together.
#[derive(Args, Debug)]
pub(crate) struct DeadLetterFilterArgs {
    /// Only messages to this app
    #[arg(long, conflicts_with_all = ["retry", "drop"])]
    pub app: Option<String>,
    /// Only messages to this service
    #[arg(long, conflicts_with_all = ["retry", "drop"])]
    pub service: Option<String>,
    /// Only messages to this handler
    #[arg(long, conflicts_with_all = ["retry", "drop"])]
    pub handler: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SchedulesArgs {
    /// List only this app's
    #[arg(long)]
    pub app: Option<String>,
    /// List only this service's
    #[arg(long)]
    pub service: Option<String>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub node: NodeArgs,
}

/// How a list is shown.
#[derive(Args, Debug)]
pub(crate) struct PageArgs {
    /// List at most so many, 1000 at most [default: 50]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Go on where a list ended, which says how
    #[arg(long, value_name = "NEXT")]
    pub after: Option<String>,
    /// Print JSON, nothing cut off
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StateArgs {
    /// The entity: service/key, or app:service/key; nothing in it is percent-encoded
    pub target: String,
    /// One field [default: all]
    #[arg(conflicts_with_all = ["prefix", "after", "limit"])]
    pub field: Option<String>,
    /// Only fields whose names begin so
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only fields behind this one, in the order of their names
    #[arg(long, value_name = "FIELD")]
    pub after: Option<String>,
    /// At most so many fields, 1000 at most [default: all, if there are 10000 at most]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AppsArgs {
    /// Print the node's answer, as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(subcommand)]
    pub command: Option<AppsCommand>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum AppsCommand {
    /// List an app's versions, and what still runs in each
    Versions {
        /// Its name
        app: String,
        /// Print the node's answer, as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Print the public key with which workers of an app verify requests, if it is deployed with --worker-signature ed25519
    WorkerKey {
        /// The app's name; it need not be deployed yet
        app: String,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Remove an app
    Remove {
        /// Its name
        app: String,
        #[command(flatten)]
        node: NodeArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct DeployArgs {
    /// The app's folder; with --worker or --settings, the app's name
    pub folder: PathBuf,
    /// The app's name [default: the folder's]
    #[arg(long, conflicts_with = "worker")]
    pub name: Option<String>,
    /// The URL of a process that runs the app's handlers, or of what stands before several of them
    #[arg(long, value_name = "URL")]
    pub worker: Option<String>,
    /// A file with the secret that requests to the worker are signed with; the worker knows the same
    #[arg(long, value_name = "FILE", requires = "worker")]
    pub worker_secret: Option<PathBuf>,
    /// Requests to the worker are signed without a secret: it knows the public key that `millrace apps worker-key` prints
    #[arg(long, value_name = "KIND", requires = "worker", conflicts_with = "worker_secret")]
    pub worker_signature: Option<WorkerSignature>,
    /// A file like millrace.toml: limits, retries, and what the worker's app may reach; without --worker, for workers that
    /// have dialled in
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pub settings: Option<PathBuf>,
    /// Print the node's answer, as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum WorkerSignature {
    /// With a private key of the server
    Ed25519,
}

#[derive(Args, Debug)]
pub(crate) struct KeysArgs {
    /// The node's TOML file of settings, which may say where its keys are
    #[arg(long, value_name = "FILE", env = "MILLRACE_CONFIG", global = true)]
    pub config: Option<PathBuf>,
    /// The node's data directory, where its keys are unless --keys says otherwise [default: ./data]
    #[arg(long, value_name = "DIR", env = "MILLRACE_DATA", global = true)]
    pub data: Option<PathBuf>,
    /// The file of API keys [default: keys.json in the data directory]
    #[arg(long, value_name = "FILE", env = "MILLRACE_KEYS", global = true)]
    pub keys: Option<PathBuf>,
    /// Change the keys of a running cluster on all its nodes, at any of them: its address
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,
    /// With --url and https: trust the certificate authorities in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", env = "MILLRACE_CA", global = true)]
    pub ca: Option<PathBuf>,
    /// With --url: an API key with the role admin
    #[arg(long, value_name = "KEY", env = "MILLRACE_API_KEY", hide_env_values = true, global = true)]
    pub api_key: Option<String>,
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum KeysCommand {
    /// Make a key and print it, once
    Add {
        /// Names the key, to revoke it later
        id: String,
        /// What it allows: admin, deploy, worker, call:<app>/<service>, call:<app>/*, call:*, or read: for queries
        /// alone; records of a type are the service records/<type>; may be repeated
        #[arg(long = "role", required = true, value_name = "ROLE")]
        roles: Vec<String>,
    },
    /// List keys and their roles
    List,
    /// Revoke a key; a running node notices within seconds, a cluster at once
    #[command(visible_alias = "revoke")]
    Remove {
        /// Which
        id: String,
    },
    /// Set what requests without a key may do, such as use a login route; no role at all closes it
    Anonymous {
        /// As for `add`
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = "./data", env = "MILLRACE_DATA")]
    pub data: PathBuf,
    /// Print every entry, one a line
    #[arg(long)]
    pub entries: bool,
    /// With --entries: only those of one shard
    #[arg(long, requires = "entries", value_name = "N")]
    pub shard: Option<u16>,
}

#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = "./data", env = "MILLRACE_DATA")]
    pub data: PathBuf,
    /// Yes, give up what cannot be read
    #[arg(long)]
    pub accept_loss: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TypesArgs {
    /// Where to write; "-" prints
    #[arg(long, value_name = "FILE", default_value = "millrace.d.ts")]
    pub out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerCheckArgs {
    /// The worker's URL
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub worker: Option<String>,
    /// The file with the worker's secret; without it and --ed25519, signatures are not checked
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Requests are signed with ed25519, and the worker has the public key of the protocol's page
    #[arg(long, conflicts_with = "secret_file")]
    pub ed25519: bool,
    /// Run only the cases whose names begin so
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub only: String,
    /// List the cases and what each expects, and ask no worker
    #[arg(long, conflicts_with_all = ["worker", "json"])]
    pub list: bool,
    /// Print what became of each case, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// Load an HTTP server and check every reply
    Http(Box<millrace_loadgen::HttpArgs>),
    /// Load an S3 server and check every reply
    S3(Box<millrace_loadgen::s3::S3Args>),
}
