//! One node: threads, the shards spread over them, and the drivers that give the pure shards a
//! log, a checkpoint, a clock and an engine.
//!
//! Each core is one thread with its own async runtime, engine, shards, log stream and
//! connections. A request runs on the core that owns its shard; another core's request is one
//! message there and one back (`core/`). A committer thread per core makes batches durable and
//! reports back as a message too; one flusher thread writes checkpoints (`flusher.rs`). Nothing
//! on a request's way takes a lock.
//!
//! Promises: implements the traits of [`millrace_api`] and nothing above them. Must not know HTTP, TLS,
//! or configuration files.

mod apps;
mod backend;
mod backup;
mod built_in_apps;
mod cluster;
mod core;
mod core_thread;
mod deploy;
mod directory;
mod entropy;
mod failure_log;
mod flusher;
mod invocations;
mod metrics;
mod node;
mod node_file;
mod objects;
mod on_workers;
mod operations;
mod options;
mod pool;
mod readers;
mod records;
mod recovery;
mod schedules;
mod version_uses;
mod versions;
mod watch;
mod worker_apps;

pub use apps::{app_from_files, app_from_folder, read_folder};
pub use backend::CoreHandle;
pub use backup::is_of_cluster_backup;
pub use cluster::{
    ClusterOptions, FoundError, Founded, Kept, KnownCluster, Member, RescueError, Tables, found, known_cluster, rescue,
};
pub use directory::{DataDirectory, DirectoryError, DiskMaker, S3_USERS_FILE, S3_USERS_TABLE};
pub use metrics::NodeMetrics;
pub use millrace_guidance::{FEATURE_LEVEL, is_rack};
pub use node::{EngineMaker, Fronts, Node, StartError};
pub use options::{Durability, NodeOptions, Outside};
