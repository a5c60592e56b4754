//! A node's settings: flags over environment (both through clap) over the TOML file over defaults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_io::TestClock;
use millrace_node::{Durability, NodeOptions};
use millrace_peers::listens_at;

use crate::Failure;
use crate::cli::{KeysArgs, ServeArgs};
use crate::cluster;
use crate::settings_file::{DurabilityName, SettingsFile, default, parse_address, parse_size};

/// Everything `millrace serve` needs to know.
#[derive(Debug)]
pub(crate) struct Settings {
    pub apps: Vec<PathBuf>,
    pub http: SocketAddr,
    pub node: NodeOptions,
    pub front: millrace_http::Options,
    /// Where to listen for S3, if anywhere, and how.
    pub s3: Option<SocketAddr>,
    pub s3_front: millrace_s3::front::Options,
    /// How long a day of lifecycle rules is, in milliseconds.
    pub s3_lifecycle_day_ms: u64,
    /// Where API keys are, or would be.
    pub key_file: PathBuf,
    /// Somebody has named that file.
    pub are_keys_named: bool,
    pub log: String,
    pub log_json: bool,
}

/// In the data directory, unless another file is named.
pub(crate) const KEY_FILE: &str = "keys.json";

const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A bucket with rules looks at all its objects each such day.
const SHORTEST_LIFECYCLE_DAY_MS: u64 = 100;

/// Without a setting, entities get this part of the machine's memory. Engines, connections and the page cache
/// need the rest; the page cache serves the checkpoint.
const MEMORY_SHARE: usize = 2;

impl Settings {
    /// Settings of a node started with `args`.
    ///
    /// # Errors
    /// A sentence naming the setting that is wrong.
    pub(crate) fn of(args: &ServeArgs) -> Result<Self, Failure> {
        let named = args.over(read_file(args.config.as_deref())?);
        let in_cluster = named.cluster_data.is_some().then(|| place_in_cluster(&named)).transpose()?;
        let data = named.cluster_data.unwrap_or_else(|| data_directory(named.data));
        let mut node = NodeOptions::new(data.clone());
        if let Some(cores) = named.cores {
            node.cores = cores_of(cores)?;
        }
        node.shards = named.shards;
        let (mut own_address, mut s3) = (None, named.s3);
        if let Some(cluster::NodeSetup { http, s3: own_s3, shards, options }) = in_cluster {
            own_address = Some(listens_at(&http)?);
            s3 = own_s3.as_deref().map(listens_at).transpose()?;
            (node.shards, node.cluster) = (Some(shards), Some(options));
        }
        node.memory_bytes = match named.memory {
            Some(text) => parse_size(&text).map_err(|what| format!("--memory {text}: {what}"))?,
            None => default_memory_bytes(),
        };
        node.durability = durability_of(named.durability);
        if let Some(hours) = named.retention_hours {
            if hours == 0 {
                return Err(
                    "--retention-hours 0: nothing would take effect once any more; keep outcomes for 1 hour at least"
                        .into(),
                );
            }
            node.retention_ms = hours.saturating_mul(HOUR_MS);
        }
        if let Some(queue_ms) = named.queue_ms {
            if queue_ms == 0 {
                return Err("--queue-ms 0: a request could not wait at all, and an idle node would refuse calls".into());
            }
            node.queue_ms = queue_ms;
        }
        node.test_clock = test_clock(named.test_clock, node.cluster.is_some())?;
        let tls = tls_files(named.tls_certificate, named.tls_key)?;
        let key_file = named.keys.clone().unwrap_or_else(|| data.join(KEY_FILE));
        let are_keys_named = named.keys.is_some();
        let keys = named.keys.or_else(|| key_file.exists().then(|| key_file.clone()));
        let mut front = millrace_http::Options { keys, tls, ..millrace_http::Options::default() };
        front.allowed_hosts = named.allowed_hosts;
        front.cors_origins = named.cors_origins;
        if let Some(connections) = named.connections {
            if connections == 0 {
                return Err("--connections 0: nobody could connect".into());
            }
            front.limits.connections = connections.div_ceil(node.cores).max(1);
        }
        front.release_memory = Some(release_memory);
        let connections = front.limits.connections;
        let is_null_store = is_null_store(named.s3_anonymous_null_store, s3)?;
        // Each node of a cluster holds contents that clients send to the others, whether it listens for S3 itself or not.
        node.keeps_objects = node.cluster.is_some() || s3.is_some() && !is_null_store;
        Ok(Self {
            apps: named.app,
            http: named.http.or(own_address).map_or_else(|| parse_address(default::http), Ok)?,
            node,
            front,
            s3,
            s3_front: s3_front((named.s3_region, is_null_store), &named.s3_domain, named.s3_signature_v2, connections),
            s3_lifecycle_day_ms: lifecycle_day_ms(named.s3_lifecycle_day_ms)?,
            key_file,
            are_keys_named,
            log: named.log.unwrap_or_else(|| default::log.to_owned()),
            log_json: named.log_json.unwrap_or(false),
        })
    }
}

fn cores_of(cores: usize) -> Result<usize, Failure> {
    if !(1..=512).contains(&cores) {
        return Err(format!("--cores {cores} is outside 1 to 512").into());
    }
    Ok(cores)
}

/// Whether S3 is served by the store that keeps nothing.
///
/// # Errors
/// If nobody listens for S3.
fn is_null_store(asked: Option<bool>, s3: Option<SocketAddr>) -> Result<bool, Failure> {
    match (asked.unwrap_or(false), s3) {
        (true, None) => Err("--s3-anonymous-null-store needs --s3: it is what answers there".into()),
        (is_null_store, _) => Ok(is_null_store),
    }
}

/// The clock that tests move, ahead by so much.
///
/// # Errors
/// In a cluster, whose leases count on clocks that pass alike; or if it is too far ahead.
fn test_clock(ahead_ms: Option<u64>, in_cluster: bool) -> Result<Option<Arc<TestClock>>, Failure> {
    let Some(ahead_ms) = ahead_ms else { return Ok(None) };
    if in_cluster {
        return Err(
            "--test-clock is for a node by itself: the nodes of a cluster count on clocks that nobody moves".into()
        );
    }
    let too_far = || format!("--test-clock={ahead_ms} is more than {}", TestClock::LONGEST_MS);
    Ok(Some(Arc::new(TestClock::ahead_by(ahead_ms).ok_or_else(too_far)?)))
}

/// How long a day of lifecycle rules is.
///
/// # Errors
/// If it is so short that a bucket would do nothing else, or longer than a day.
fn lifecycle_day_ms(named: Option<u64>) -> Result<u64, Failure> {
    match named {
        None => Ok(DAY_MS),
        Some(day_ms) if (SHORTEST_LIFECYCLE_DAY_MS..=DAY_MS).contains(&day_ms) => Ok(day_ms),
        Some(day_ms) => {
            Err(format!("--s3-lifecycle-day-ms {day_ms} is outside {SHORTEST_LIFECYCLE_DAY_MS} to {DAY_MS}").into())
        }
    }
}

fn durability_of(named: Option<DurabilityName>) -> Durability {
    match named {
        None | Some(DurabilityName::Fsync) => Durability::Fsync,
        Some(DurabilityName::Os) => Durability::Os,
        Some(DurabilityName::None) => Durability::None,
    }
}

/// # Errors
/// One of the two files alone is of no use.
fn tls_files(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<millrace_http::TlsFiles>, Failure> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(millrace_http::TlsFiles { certificate, key })),
        (None, None) => Ok(None),
        _ => Err("TLS needs both --tls-certificate and --tls-key".into()),
    }
}

/// Where a node of a cluster serves, how many shards there are, and its part in the cluster.
///
/// # Errors
/// A sentence that names what is wrong.
fn place_in_cluster(named: &SettingsFile) -> Result<cluster::NodeSetup, Failure> {
    if named.data.is_some() || named.http.is_some() || named.s3.is_some() || named.shards.is_some() {
        let what = "--cluster-data says itself where the data is, where to listen, --s3 included, and how many shards there are";
        return Err(what.into());
    }
    if matches!(named.durability, Some(DurabilityName::None)) {
        return Err("--durability none: the nodes of a cluster promise each other that what they have stays".into());
    }
    if !named.app.is_empty() {
        return Err("--app: in a cluster apps are deployed (millrace deploy), so that all nodes serve the same".into());
    }
    cluster::options_to_serve(named.cluster_data.as_deref().unwrap_or(Path::new("")))
}

fn s3_front(
    (region, is_null_store): (Option<String>, bool),
    domains: &[String],
    signature_v2: Option<bool>,
    connections: usize,
) -> millrace_s3::front::Options {
    millrace_s3::front::Options {
        region: region.unwrap_or_else(|| default::s3_region.to_owned()),
        domains: domains.iter().map(|domain| domain.to_ascii_lowercase()).collect(),
        connections,
        allows_signature_version_2: signature_v2.unwrap_or(false),
        is_null_store,
        ..millrace_s3::front::Options::default()
    }
}

/// The file of keys of a node that starts with the same flags, environment and file of settings.
///
/// # Errors
/// A sentence about a file of settings that cannot be used.
pub(crate) fn key_file(args: &KeysArgs) -> Result<PathBuf, Failure> {
    let file = read_file(args.config.as_deref())?;
    let data = data_directory(args.data.clone().or(file.data));
    Ok(args.keys.clone().or(file.keys).unwrap_or_else(|| data.join(KEY_FILE)))
}

fn data_directory(named: Option<PathBuf>) -> PathBuf {
    named.unwrap_or_else(|| PathBuf::from(default::data))
}

/// Gives freed memory of this thread back to the system.
fn release_memory() {
    // SAFETY: the function takes no pointers and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

fn read_file(path: Option<&Path>) -> Result<SettingsFile, Failure> {
    let Some(path) = path else {
        return Ok(SettingsFile::default());
    };
    let text = std::fs::read_to_string(path).map_err(|error| format!("--config {}: {error}", path.display()))?;
    SettingsFile::parse(&text).map_err(|error| format!("--config {}: {error}", path.display()).into())
}

fn default_memory_bytes() -> usize {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<usize>().ok());
    let machine_bytes = total_kib.map_or(2 << 30, |kib| kib * 1024);
    let container_bytes = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container_bytes = container_bytes.and_then(|text| text.trim().parse::<usize>().ok());
    container_bytes.map_or(machine_bytes, |limit| limit.min(machine_bytes)) / MEMORY_SHARE
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod defaults;

#[cfg(test)]
#[path = "settings_guide_tests.rs"]
mod settings_guide;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, KeysCommand};

    #[test]
    fn flags_beat_the_file_and_unknown_keys_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("millrace.toml");
        std::fs::write(
            &path,
            "cores = 3\nshards = 8\nmemory = \"64MiB\"\ndurability = \"os\"\nallowed_hosts = [\"shop.test\"]\n",
        )
        .expect("written");
        let args = ServeArgs { config: Some(path.clone()), cores: Some(2), ..ServeArgs::default() };
        let settings = Settings::of(&args).expect("valid");
        assert_eq!((settings.node.cores, settings.node.shards), (2, Some(8)));
        assert_eq!((settings.node.memory_bytes, settings.node.durability), (64 << 20, Durability::Os));
        assert_eq!(settings.front.allowed_hosts, ["shop.test"]);
        let args = ServeArgs { allowed_hosts: vec!["a.test".to_owned(), "b.test".to_owned()], ..args };
        assert_eq!(Settings::of(&args).expect("valid").front.allowed_hosts, ["a.test", "b.test"]);
        for text in ["core = 3", "cores = \"x\"", "durability = \"maybe\"", "memory = \"1\"", "["] {
            std::fs::write(&path, text).expect("written");
            let error = Settings::of(&args).expect_err(text).to_string();
            assert!(error.contains("--config") || error.contains("--memory"), "{error}");
        }
    }

    const GUIDE: &str = include_str!("../../../docs/guide/operations.md");

    #[test]
    fn the_guides_file_of_settings_can_be_used() {
        let (_, from) = GUIDE.split_once("<!-- a test reads this file -->\n\n```toml\n").expect("the mark");
        let (text, _) = from.split_once("\n```\n").expect("its end");
        let file = SettingsFile::parse(text).expect("valid");
        assert_eq!((file.app.len(), file.log_json, file.cores), (2, Some(true), Some(4)));
        parse_size(&file.memory.expect("a size")).expect("a size");
    }

    #[test]
    fn the_guides_table_has_every_setting() {
        let rows: Vec<&str> = GUIDE.lines().filter(|line| line.starts_with("| `--")).collect();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").expect("there");
        let flags = serve.get_arguments().filter_map(|flag| Some((flag.get_long()?, flag.get_env()?.to_str()?)));
        // What a file may say is told by what it is answered when it says something else.
        let known = SettingsFile::parse("nothing = 1").expect_err("no such key");
        let keys: Vec<&str> = known.split('`').skip(3).step_by(2).collect();
        for (flag, variable) in flags {
            let key = flag.replace('-', "_");
            let key = if keys.contains(&key.as_str()) { format!("`{key}`") } else { String::new() };
            let is_it = |row: &&&str| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                let name = cells[1].trim_matches('`').split(' ').next();
                name == Some(&format!("--{flag}")) && cells[2] == format!("`{variable}`") && cells[3] == key
            };
            assert!(rows.iter().any(|row| is_it(&row)), "--{flag}, {variable}, {key}: {known}");
        }
        assert!(keys.len() > 10, "{known}");
    }

    #[test]
    fn a_clock_for_tests_is_of_a_node_by_itself_and_said_on_purpose() {
        let of = |words: &[&str]| {
            let cli =
                Cli::try_parse_from([&["millrace", "serve"], words].concat()).map_err(|error| error.to_string())?;
            let crate::cli::Command::Serve(args) = cli.command else { return Err("serve".to_owned()) };
            let node = Settings::of(&args).map_err(|error| error.to_string())?.node;
            Ok(node.test_clock.map(|clock| clock.ahead_ms()))
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["--test-clock"]), Ok(Some(0)));
        assert_eq!(of(&["--test-clock=5000"]), Ok(Some(5000)));
        assert!(of(&["--test-clock=-1"]).is_err());
        let too_far = of(&[&format!("--test-clock={}", u64::MAX)]).expect_err("a hundred years");
        assert!(too_far.contains("--test-clock="), "{too_far}");
        let refused = test_clock(Some(0), true).expect_err("a cluster").to_string();
        assert!(refused.contains("--test-clock") && refused.contains("cluster"), "{refused}");
    }

    fn no_keys() -> KeysArgs {
        let command = KeysCommand::List;
        KeysArgs { config: None, data: None, keys: None, url: None, ca: None, api_key: None, command }
    }

    #[test]
    fn keys_are_where_the_node_looks_for_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let (config, data) = (folder.path().join("millrace.toml"), folder.path().join("data"));
        std::fs::write(&config, format!("data = {:?}\n", data)).expect("written");
        let other = folder.path().join("other.json");
        for (config, data, keys) in [
            (None, None, None),
            (Some(&config), None, None),
            (Some(&config), Some(folder.path()), None),
            (Some(&config), Some(folder.path()), Some(&other)),
            (None, Some(folder.path()), None),
        ] {
            let (config, data) = (config.cloned(), data.map(Path::to_owned));
            let keys = keys.cloned();
            let serve =
                ServeArgs { config: config.clone(), data: data.clone(), keys: keys.clone(), ..ServeArgs::default() };
            let settings = Settings::of(&serve).expect("valid");
            let made = key_file(&KeysArgs { config, data, keys, ..no_keys() }).expect("valid");
            assert_eq!(made, settings.key_file);
        }
        std::fs::write(&config, "data = 1").expect("written");
        let args = KeysArgs { config: Some(config), ..no_keys() };
        assert!(key_file(&args).expect_err("no text").to_string().contains("--config"));
    }

    #[test]
    fn the_switch_for_json_is_read_by_the_order_of_all_settings() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("millrace.toml");
        std::fs::write(&path, "log_json = true\n").expect("written");
        let args = |log_json| ServeArgs { config: Some(path.clone()), log_json, ..ServeArgs::default() };
        assert!(Settings::of(&args(None)).expect("valid").log_json);
        assert!(!Settings::of(&args(Some(false))).expect("valid").log_json, "the environment beats the file");
        let words = |words: &[&str]| Cli::try_parse_from([&["millrace", "serve"], words].concat());
        assert!(words(&["--log-json", "--cores", "1"]).is_ok() && words(&["--log-json=no"]).is_ok());
    }
}
