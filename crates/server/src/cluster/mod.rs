//! `millrace cluster`: make a cluster's directories, start a cluster for trying, look at one, change its nodes.

mod demo;
mod directory;
mod init_from;
mod make;
mod nodes;
mod rescue;
mod reset;
mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::Failure;
use crate::cli::NodeArgs;

use directory::options;
pub(crate) use directory::{NodeSetup, options_to_serve};

pub(crate) const EXAMPLES: &str = "\
Examples:
  millrace cluster demo --data /tmp/demo --app examples/counter
  millrace cluster init --data /srv/shop --http 10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080 \\
      --peer 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000
  millrace cluster init --from ./data --data /srv/shop --http 10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080 \\
      --peer 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000
  millrace serve --cluster-data /srv/shop/n1
  millrace cluster status --url http://10.0.0.1:8080
  millrace cluster guidance --url http://10.0.0.1:8080
  millrace cluster join --url http://10.0.0.1:8080 --authority /srv/shop/authority --data /srv/shop/n4 \\
      --http 10.0.0.4:8080 --peer 10.0.0.4:7000
  millrace cluster drain 2 --url http://10.0.0.1:8080
  millrace cluster remove 2 --url http://10.0.0.1:8080
  millrace cluster reset /srv/shop/n1
  millrace cluster rescue /srv/shop/n1 --accept-loss";

#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
enum ClusterCommand {
    /// Make the directories of a new cluster's nodes, with their certificates
    ///
    /// DIR/n1, DIR/n2 and so on are one for each node: carry each to its machine, and start `millrace serve
    /// --cluster-data` there. DIR/authority signs certificates of nodes: keep it, and keep it secret. With --from the cluster
    /// begins with all that a node has that stood alone. It must not run.
    Init(InitArgs),
    /// Start a cluster on this machine, for trying and for tests
    ///
    /// Makes the directories unless they are there, starts the nodes and deploys the apps. Once all nodes serve, prints
    /// their addresses as one line of JSON. SIGTERM and Ctrl-C stop the nodes. A node that is killed is
    /// not started again: `millrace serve --cluster-data DIR/n1` brings it back.
    Demo(DemoArgs),
    /// Show the nodes of a cluster, and which shards they own
    Status(NodeArgs),
    /// Print the guidance that a node follows, as JSON
    ///
    /// It is the answer of `GET /cluster`: the epoch, the nodes, and for each shard its owner and replicas.
    Guidance(NodeArgs),
    /// Make the directory of one more node for a cluster that runs
    ///
    /// Carry it to its machine, and start `millrace serve --cluster-data` there. The node gets its share of the shards then.
    Join(JoinArgs),
    /// Move what a node holds to the others, and wait until it holds nothing
    Drain(DrainArgs),
    /// Take a node out of the cluster, for good: one that has drained, or one that is dead
    Remove(RemoveArgs),
    /// Go on with one node when a majority of the nodes has lost its data for good
    ///
    /// The node must not run. What it has becomes the truth, and it is the only node of the cluster from then on. Writes that only
    /// lost nodes had acknowledged are gone. The command says what the node has. It does nothing without --accept-loss.
    Rescue(RescueArgs),
    /// Empty the directory of a node whose data is damaged or lost
    ///
    /// The node must not run. What its directory held is gone. It keeps its certificate. The next start gets everything from
    /// the other nodes: a majority of them has to run.
    Reset(ResetArgs),
}

#[derive(Args, Debug)]
struct InitArgs {
    /// Where the nodes' directories are made
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where the nodes serve HTTP, in their order: IP addresses or host names, with ports
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', required = true)]
    http: Vec<String>,
    /// Where the nodes hear each other, in their order
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', required = true)]
    peer: Vec<String>,
    /// The first API keys of all nodes: a file that `millrace keys --keys FILE add` has made
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    keys: Option<PathBuf>,
    /// Where the nodes listen for S3, in their order; without it the cluster keeps no objects
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',')]
    s3: Vec<String>,
    /// What each node fails together with, in their order: the name of its rack or zone. Each shard is held in as many as there are
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    rack: Vec<String>,
    /// Shards of the cluster; fixed from then on [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    shards: Option<u16>,
    /// Nodes that hold each shard: 3 or 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    replicas: u16,
    /// The data directory of a node that stood alone. DIR/n1 gets a copy of it
    #[arg(long, value_name = "DATA")]
    from: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct JoinArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// The authority that `init` has made
    #[arg(long, value_name = "DIR")]
    authority: PathBuf,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where the node will serve HTTP
    #[arg(long, value_name = "ADDR")]
    http: String,
    /// Where the node will hear the others
    #[arg(long, value_name = "ADDR")]
    peer: String,
    /// Where the node will listen for S3; given if the others do
    #[arg(long, value_name = "ADDR")]
    s3: Option<String>,
    /// What the node fails together with: the name of its rack or zone
    #[arg(long, value_name = "NAME")]
    rack: Option<String>,
}

#[derive(Args, Debug)]
struct DrainArgs {
    /// The node's number
    #[arg(value_name = "NODE")]
    number: u16,
    /// Let it hold shards again
    #[arg(long)]
    undo: bool,
    /// How long to wait, in seconds; the node drains on after that
    #[arg(long, value_name = "S", default_value_t = 600)]
    wait_s: u64,
    #[command(flatten)]
    at: NodeArgs,
}

#[derive(Args, Debug)]
struct RemoveArgs {
    /// The node's number
    #[arg(value_name = "NODE")]
    number: u16,
    /// How long to wait, in seconds, until a dead node holds nothing
    #[arg(long, value_name = "S", default_value_t = 600)]
    wait_s: u64,
    #[command(flatten)]
    at: NodeArgs,
}

#[derive(Args, Debug)]
struct ResetArgs {
    /// The node's directory, as `init` has made it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// A node of the cluster that runs, to say which nodes there are now. Without it the directory's own data says so
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// For https: trust the certificate authorities in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", env = "MILLRACE_CA")]
    ca: Option<PathBuf>,
    /// With --url: an API key
    #[arg(long, value_name = "KEY", env = "MILLRACE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

#[derive(Args, Debug)]
struct RescueArgs {
    /// The directory of the node that has its data
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Do it: writes that were acknowledged may be lost
    #[arg(long)]
    accept_loss: bool,
}

#[derive(Args, Debug)]
struct DemoArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u16,
    /// Where the nodes' data goes: DIR/n1 and so on
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The first node's port for HTTP; the others have the next ones
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    http_base: u16,
    /// The first node's port for other nodes; the others have the next ones
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    peer_base: u16,
    /// The first node's port for S3; the others have the next ones [default: none listens for S3]
    #[arg(long, value_name = "PORT")]
    s3_base: Option<u16>,
    /// An app's folder to deploy, named after it; may be repeated
    #[arg(long, value_name = "DIR")]
    app: Vec<PathBuf>,
    /// Threads of each node
    #[arg(long, value_name = "N", default_value_t = 1)]
    cores: usize,
    /// Shards of the cluster; fixed from then on
    #[arg(long, value_name = "N", default_value_t = 64)]
    shards: u16,
    /// Nodes that hold each shard: 3 or 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    replicas: u16,
    /// Put load on the cluster, kill a node, start it again, and count
    ///
    /// It is killed after a third of the time and started after two thirds. Each second is shown. The plot is DIR.svg. Nothing may
    /// be lost: else the command fails.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "30",
        value_parser = clap::value_parser!(u64).range(6..=86_400))]
    load: Option<u64>,
    /// Leave the data when it ends
    #[arg(long)]
    keep: bool,
}

/// Runs a command.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    match &args.command {
        ClusterCommand::Init(args) => make::init(args),
        ClusterCommand::Demo(args) => demo::run(args),
        ClusterCommand::Status(node) => status::show(node),
        ClusterCommand::Guidance(node) => status::print(node),
        ClusterCommand::Join(args) => nodes::join(args),
        ClusterCommand::Drain(args) => nodes::drain(args),
        ClusterCommand::Remove(args) => nodes::remove(args),
        ClusterCommand::Rescue(args) => rescue::run(args),
        ClusterCommand::Reset(args) => reset::run(args),
    }
}
