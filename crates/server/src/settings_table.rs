//! The settings of `millrace serve`, each declared once.
//!
//! Flags, variables, keys of the file, `--help` and the guide's table are made from this list. The field's name is the
//! key; the flag is the key with `-` for `_`. A test compares the variable, the guide's table and the defaults of the code.

/// Hands the list of settings to the macro `$declare`.
///
/// An entry is: field and type, variable, name of the value, default if there is one, text of `--help`, text of the
/// guide. Then, where needed, further arguments of `#[arg]` for the flag and of `#[serde]` for the file.
macro_rules! with_settings {
    ($declare:ident) => {
        $declare! {
            {
                app: Vec<PathBuf>, "MILLRACE_APP", "DIR",
                "An app's folder, named after it; may be repeated",
                guide "an app to serve, named after its folder; may be repeated. In the variable, commas separate several. \
                       In the file it is a text or a list",
                arg(value_delimiter = ','), file(deserialize_with = "one_or_many")
            }
            {
                data: Option<PathBuf>, "MILLRACE_DATA", "DIR", default "./data",
                "The data directory",
                guide "the data directory; one process at a time"
            }
            {
                cluster_data: Option<PathBuf>, "MILLRACE_CLUSTER_DATA", "DIR",
                "The directory of this node in a cluster, as `millrace cluster init` makes it; instead of --data and --http",
                guide "the directory of this node in a [cluster](cluster.md); instead of `data` and `http`"
            }
            {
                http: Option<SocketAddr>, "MILLRACE_HTTP", "ADDR", default "127.0.0.1:8080",
                "Where to listen for HTTP, as 127.0.0.1:8080, localhost:8080 or 0.0.0.0:8080",
                guide "where to listen: an address and a port, such as `[::1]:8080`. `0.0.0.0:8080` means all addresses of the \
                       machine, and needs [keys](#api-keys-and-tls). `localhost` is 127.0.0.1; other names are not looked up",
                arg(value_parser = parse_address), file(deserialize_with = "address")
            }
            {
                s3: Option<SocketAddr>, "MILLRACE_S3", "ADDR",
                "Where to listen for S3, as 127.0.0.1:9000; without it, nowhere",
                guide "where to listen for [S3](objects.md), such as `127.0.0.1:9000`; without it, nowhere",
                arg(value_parser = parse_address), file(deserialize_with = "address")
            }
            {
                s3_domain: Vec<String>, "MILLRACE_S3_DOMAIN", "NAME,…",
                "Domains whose subdomains are buckets, as s3.example.com; may be repeated",
                guide "domains whose subdomains are [buckets](objects.md)",
                arg(value_delimiter = ',')
            }
            {
                s3_region: Option<String>, "MILLRACE_S3_REGION", "NAME", default "us-east-1",
                "The region that S3 requests must be signed for",
                guide "the region that S3 requests must be signed for"
            }
            {
                s3_signature_v2: Option<bool>, "MILLRACE_S3_SIGNATURE_V2", "YES",
                "Also take S3 requests with old signatures (version 2)",
                guide "also take S3 requests with old signatures, of version 2; only for clients that know no others",
                arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = parse_switch)
            }
            {
                s3_lifecycle_day_ms: Option<u64>, "MILLRACE_S3_LIFECYCLE_DAY_MS", "MS", default "86400000",
                "Only to try lifecycle rules: how long a day of theirs is, in milliseconds",
                guide "only to [try lifecycle rules](objects.md#lifecycle-rules): how long a day of theirs is"
            }
            {
                s3_anonymous_null_store: Option<bool>, "MILLRACE_S3_ANONYMOUS_NULL_STORE", "YES",
                "Only to measure the S3 front: anybody may do anything, content is thrown away, and zeros come back",
                guide "only to measure the S3 front: [anybody may do anything, content is thrown away, and zeros come \
                       back](objects.md#the-null-store)",
                arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = parse_switch)
            }
            {
                cores: Option<usize>, "MILLRACE_CORES", "N", default "one for each processor",
                "Threads that serve",
                guide "threads that serve"
            }
            {
                shards: Option<u16>, "MILLRACE_SHARDS", "N", default "64",
                "Shards of a new data directory; fixed from then on",
                guide "fixed when the data directory is created"
            }
            {
                memory: Option<String>, "MILLRACE_MEMORY", "SIZE", default "half of the machine's",
                "Memory for entities, as 512MiB or 4GiB; state may be larger",
                guide "what entities may use in memory, as `512MiB`; state may be larger, the rest stays on disk; see \
                       [memory](#memory)"
            }
            {
                durability: Option<DurabilityName>, "MILLRACE_DURABILITY", "LEVEL", default "fsync",
                "What an acknowledged effect survives",
                guide "[see below](#durability)"
            }
            {
                keys: Option<PathBuf>, "MILLRACE_KEYS", "FILE", default "keys.json in the data directory, if it is there",
                "The file of API keys",
                guide "the [API keys](#api-keys-and-tls)"
            }
            {
                allowed_hosts: Vec<String>, "MILLRACE_ALLOWED_HOSTS", "NAME,…",
                "While there are no keys: names, beside localhost, under which browsers may use the node",
                guide "[names under which browsers may use a node without keys](#api-keys-and-tls)",
                arg(value_delimiter = ',')
            }
            {
                cors_origins: Vec<String>, "MILLRACE_CORS_ORIGINS", "ORIGIN,…",
                "Origins whose web pages may use the node and read its replies, as https://shop.test; * for all",
                guide "[origins whose web pages may read replies](http.md#web-pages)",
                arg(value_delimiter = ',')
            }
            {
                tls_certificate: Option<PathBuf>, "MILLRACE_TLS_CERTIFICATE", "FILE",
                "Serve TLS with this certificate chain (PEM); read again when it changes",
                guide "the certificate chain (PEM) to [serve TLS](#api-keys-and-tls) with"
            }
            {
                tls_key: Option<PathBuf>, "MILLRACE_TLS_KEY", "FILE",
                "The private key of the certificate (PEM)",
                guide "the certificate's private key (PEM)"
            }
            {
                retention_hours: Option<u64>, "MILLRACE_RETENTION_HOURS", "HOURS", default "24",
                "How long outcomes of idempotency keys are kept, in hours",
                guide "how long [outcomes of idempotency keys](#clients-that-retry) are kept"
            }
            {
                queue_ms: Option<u64>, "MILLRACE_QUEUE_MS", "MS", default "500",
                "How long a request may wait for its core before new ones get 503, in milliseconds",
                guide "how long a request may wait for its core before new ones get [503](#when-something-is-wrong)"
            }
            {
                connections: Option<usize>, "MILLRACE_CONNECTIONS", "N", default "65536 for each core",
                "Connections that may be open",
                guide "connections that may be open"
            }
            {
                test_clock: Option<u64>, "MILLRACE_TEST_CLOCK", "MS",
                "Only for tests: a clock that POST /clock.json moves ahead, and how many milliseconds it is ahead at the start",
                guide "only for tests: a clock that [`POST /clock.json`](#a-clock-for-tests) moves ahead, and by how much it is \
                       ahead at the start. `--test-clock` alone is 0",
                arg(num_args = 0..=1, require_equals = true, default_missing_value = "0")
            }
            {
                log: Option<String>, "MILLRACE_LOG", "FILTER", default "info",
                "What to log: error, warn, info, debug, or a filter as of tracing's EnvFilter",
                guide "what to log: `error`, `warn`, `info`, `debug`, or a filter as of tracing's \
                       [EnvFilter](https://docs.rs/tracing-subscriber/latest/tracing_subscriber/filter/struct.EnvFilter.html)"
            }
            {
                log_json: Option<bool>, "MILLRACE_LOG_JSON", "YES",
                "Log one JSON object a line",
                guide "one JSON object a line. In the variable: `yes` or `no`, `1` or `0`, `true` or `false`",
                arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = parse_switch)
            }
        }
    };
}

pub(crate) use with_settings;
