//! Every limit that bounds what a stranger can send or a function can use, with its reason. Limits that an app may
//! change are fields of `func::Limits`; their defaults come from here.

/// Bytes in the name of an app, service or handler. Long enough for words, short enough to log.
pub const NAME_BYTES: usize = 64;

/// Bytes in an entity's key. A longer key would be data, and keys are kept in memory per entity.
pub const KEY_BYTES: usize = 1024;

/// Bytes in the key of a built-in app's entity: what users name, of [`KEY_BYTES`], and the app's own words around it, such
/// as a bucket and the id of an upload.
pub const BUILT_IN_KEY_BYTES: usize = KEY_BYTES + 128;

/// Bytes in a field's name, for the same reason as [`KEY_BYTES`].
pub const FIELD_BYTES: usize = 1024;

/// Bytes in one field's value. A value is read, written and logged whole.
pub const VALUE_BYTES: usize = 1 << 20;

/// Fields one call may write. Bounds the entry that one call can make the log hold.
pub const WRITES_PER_CALL: usize = 10_000;

/// Bytes of one log entry, that is, all that one transaction may write.
pub const ENTRY_BYTES: usize = 16 << 20;

/// Bytes in an `Idempotency-Key`: a UUID or a short composed key.
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;

/// Bytes of a call's input: one request body.
pub const INPUT_BYTES: usize = 4 << 20;

/// Bytes of a call's output.
pub const OUTPUT_BYTES: usize = 4 << 20;

/// Bytes of the disk that new bodies of objects leave free, or a quarter of a small disk. The log takes them: it leaves
/// 32 MiB itself, and on each core its next segment may take 64 MiB. So objects can be deleted when they fill the disk.
pub const BODIES_RESERVE_BYTES: u64 = 256 << 20;

/// Bytes of an object that a function writes: it travels in the transaction's entry, as a field's value does.
pub const OBJECT_WRITE_BYTES: usize = VALUE_BYTES;

/// Slices of a bucket. A page of a list asks all of them, each for as many keys as the page may have.
pub const BUCKET_SLICES: u16 = 16;

/// Bytes of an object that a function reads: it is in the service's memory whole, as the response to a fetch is.
pub const OBJECT_READ_BYTES: usize = 4 << 20;

/// Rows that one `ctx.entries` or `ctx.fields` answer may hold.
pub const SCAN_ROWS: usize = 10_000;

/// Bytes of the rows that one scan, or one read of a whole entity, may gather. They are in memory at once, outside any
/// function's own limit.
pub const SCAN_BYTES: usize = 16 << 20;

/// Rows, and their bytes, that are in memory at a time while all rows of an entity are read in parts. One row may be
/// larger than the bytes here.
pub const PART: (usize, usize) = (1_000, 1 << 20);

/// CPU time one transaction may use: its handler and whatever that calls, waits not counted. Were it counted for each
/// handler, one request could use [`CALLS_PER_TRANSACTION`] times as much.
pub const CPU_MS: u64 = 100;

/// CPU time after which a transaction lets other requests of its core have a turn, before it starts its next handler. As
/// long as a core works before it looks for new input. Transactions that use less, nearly all, hold no lock.
pub const CPU_SLICE_NS: u64 = 2_000_000;

/// JavaScript heap of one service on one core.
pub const SERVICE_MEMORY_BYTES: usize = 64 << 20;

/// Native stack one service's code may use.
pub const STACK_BYTES: usize = 512 << 10;

/// How deep `ctx.call` may nest.
pub const CALL_DEPTH: usize = 16;

/// Calls that one transaction may make in all. If only the depth bounded it, a function that calls itself twice would
/// run for hours.
pub const CALLS_PER_TRANSACTION: usize = 10_000;

/// Operations (calls, hashes) one call may have open at once.
pub const PENDING_OPERATIONS: usize = 1024;

/// Lines of an app's `[objects] notifications`. Each is compared when an object changes.
pub const NOTIFYING_BUCKETS: usize = 100;

/// Messages one transaction may send.
pub const MESSAGES_PER_CALL: usize = 1024;

/// Triggers that run after a commit, each caused by the writes of the one before. A longer chain probably has no end,
/// such as a trigger that writes its own record, and would run at full speed for ever. The number is the same as how
/// deep calls may nest.
pub const TRIGGER_DEPTH: u8 = 16;

/// The clocks of two machines may differ in their rates by one part in so many. Where a machine waits out what another one
/// has promised, it waits longer by this share.
pub const CLOCK_RATE_SHARE: u64 = 50;

/// How long a call may wait in all. Longer work is a workflow.
pub const CALL_WAIT_MS: u64 = 10_000;

/// How long a type's changes are kept unless its settings say otherwise. A reader that stood still over a long weekend
/// misses nothing.
pub const CHANGE_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// How long the reply to an idempotency key is kept: a day of client retries.
pub const IDEMPOTENCY_RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// Bytes of an app's source files together.
pub const APP_BYTES: usize = 16 << 20;

/// Memory of all versions of apps together that were replaced and are still loaded, on all cores. What they are kept for
/// ends: calls within seconds, workflows in their time. Beyond this no app is deployed.
pub const REPLACED_VERSIONS_BYTES: usize = 512 << 20;

/// Versions of apps that a cluster keeps for workflows. Every node has all of them loaded, so memory bounds them first.
pub const KEPT_VERSIONS: usize = 256;

/// Files in an app.
pub const APP_FILES: usize = 1024;

/// Bytes of one code file of an app. The parser gets stack for the case that every byte nests. That is 4 GiB of address
/// space here, and at worst under half of that in memory for a moment.
pub const CODE_FILE_BYTES: usize = 1 << 20;

/// Bytes in a file's path inside an app. This is what one path component may hold on Linux, so an app can always be
/// unpacked again.
pub const APP_PATH_BYTES: usize = 255;

/// Bytes of an app's archive beyond its files. Each file and its folder have a 512-byte header, padding to 512 bytes
/// and an extended header.
pub const APP_ARCHIVE_OVERHEAD_BYTES: usize = 4 << 20;

/// Bytes of an HTTP request's line and headers: the default of other servers.
pub const HTTP_HEADER_BYTES: usize = 16 << 10;

/// Headers of an HTTP request.
pub const HTTP_HEADERS: usize = 64;

/// Frames of HTTP/2 that carry no request (priorities, windows, settings, pings), which a connection may send before its
/// first request: browsers send some ten. Requests and what they are answered allow more.
pub const HTTP2_FRAMES: u64 = 1_000;

/// How many of these each second allows: a ping now and then, and no work that counts.
pub const HTTP2_FRAMES_PER_SECOND: u64 = 100;

/// Headers of an HTTP reply that a route may set.
pub const HTTP_REPLY_HEADERS: usize = 64;

/// Bytes of all reply headers that a route may set: what common clients accept.
pub const HTTP_REPLY_HEADER_BYTES: usize = 16 << 10;

/// API keys in a key file. The file is read whole, and one key serves many callers.
pub const API_KEYS: usize = 10_000;

/// S3 users of a node. The table is in memory as a whole, and a change writes it as a whole: with these limits at most 16
/// MiB, which is what a file that the manifest lists may have.
pub const S3_USERS: usize = 10_000;

/// Access keys of one S3 user that are active. Two are enough to change a key: make the new one, move to it, revoke the
/// old one.
pub const S3_ACTIVE_KEYS: usize = 2;

/// Access keys of one S3 user, revoked ones included. The list shows what was revoked last; older ones are forgotten.
pub const S3_KEYS: usize = 4;

/// Bytes of an S3 user's name, for the same reason as [`NAME_BYTES`].
pub const S3_USER_NAME_BYTES: usize = 64;

/// Bytes of an e-mail address (RFC 5321: 254 in a path).
pub const EMAIL_BYTES: usize = 254;

/// Bytes of an access key: the fewest that servers of S3 accept, and the most that AWS documents.
pub const S3_ACCESS_KEY_BYTES: std::ops::RangeInclusive<usize> = 3..=128;

/// Bytes of a secret key that a caller chooses. Shorter ones can be guessed from one signed request.
pub const S3_SECRET_KEY_BYTES: std::ops::RangeInclusive<usize> = 8..=128;

/// Shards a data directory may be created with.
pub const SHARDS: u16 = 4096;

/// Times that something which fails is tried, unless its author says otherwise: with the pauses below, for some seven
/// minutes.
pub const RETRY_ATTEMPTS: u32 = 16;

/// The pause after the first failure. Each further one is twice as long as the one before it.
pub const RETRY_FIRST_MS: u64 = 100;

/// The longest pause between two attempts, unless the author says otherwise.
pub const RETRY_LONGEST_MS: u64 = 60_000;

/// Paused workflows, and dead letters, that one shard lets go on for one deployment. The rest wait for the next one, or for
/// somebody.
pub const RESUMED_ON_DEPLOY: usize = 10_000;

/// Pauses that an author may choose, in milliseconds. None at all would keep a core busy; after a day nobody waits any more.
pub const RETRY_PAUSE_MS: std::ops::RangeInclusive<u64> = 1..=86_400_000;

/// Calls that may queue for one entity. Beyond this, waiting longer helps no caller.
pub const ENTITY_QUEUE: usize = 4096;

/// How long a shard keeps the result of a workflow's call if the workflow's shard never acknowledges it. The workflow's
/// shard does so within moments, unless it is down.
pub const ONCE_RETENTION_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// Operations of one workflow. Each is a row of its journal, and is read again whenever the workflow starts again.
pub const WORKFLOW_OPERATIONS: u32 = 10_000;

/// Workflows of one shard whose code stays in memory while they only sleep or wait. The others run again from their
/// journal when they wake.
pub const WORKFLOWS_AWAKE: usize = 256;

/// Workflows of one shard that go on in one input, and that a shard resumes at once after a start. The others follow in
/// the next input.
pub const WORKFLOWS_PER_INPUT: usize = 16;

/// Turns of one workflow's code before other workflows run. A workflow that always gets its next result at once would
/// keep the core.
pub const WORKFLOW_TURNS: usize = 64;

/// Milliseconds by which a message, a workflow's sleep or its wait for a signal may be delayed: ten years. A caller
/// that asks for more has mistaken the unit, or given a date. The bound also keeps times far from their type's end, and
/// exact in JSON.
pub const DELAY_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

/// Milliseconds that a request may wait for an invocation's end. Proxies give up on a silent connection after about a
/// minute. A client that wants to wait longer asks again.
pub const INVOCATION_WAIT_MS: u64 = 60_000;

/// Bytes in an id that a caller chooses for a workflow: as much as a UUID and some words. It is in every list.
pub const CHOSEN_ID_BYTES: usize = 128;

/// Workflows and operations of a shard that wait for the result of one of its workflows. Whoever comes later asks again.
pub const RESULT_WAITERS: usize = 100_000;

/// Milliseconds for which `ctx.result` waits for a workflow that nobody has started. What starts it may be on its way, and
/// is tried again for some seven minutes.
pub const RESULT_UNKNOWN_MS: u64 = 600_000;

/// How often a workflow may be restarted from different steps: each is in its row.
pub const WORKFLOW_RUNS: usize = 16;

/// Bytes in the name of the step from which a workflow is restarted: names of calls have keys in them.
pub const RESTARTED_FROM_BYTES: usize = 4 << 10;

/// Signals that wait for one workflow.
pub const SIGNALS_PER_WORKFLOW: usize = 1_000;

/// Bytes of the payloads of these signals. A new signal, and a workflow that waits, look through all of them.
pub const SIGNAL_BYTES_PER_WORKFLOW: usize = 16 << 20;

/// Messages of one shard that may run at the same time.
pub const RUNNING_MESSAGES: usize = 64;

/// Messages one shard may have on the way to another, not yet acknowledged.
pub const DELIVERY_WINDOW: usize = 256;

/// Bytes of messages on the way between all shards of a node; each shard has its share. They are in memory until the
/// receiver has them durably. Those that become durable together are carried over together, which takes a core some
/// milliseconds. The bound fits some 6,000 small messages, which are on the way for a batch of the log or two.
pub const DELIVERY_BYTES: usize = 2 << 20;

/// How long a request may wait for its core. A request that has to wait longer is refused at once: its caller has
/// probably given up, and work for it would starve the others. The time is long enough to serve all of ten thousand
/// clients that ask at once.
pub const QUEUE_MS: u64 = 500;

/// Requests that may wait for one core, whatever their age.
pub const QUEUE_REQUESTS: usize = 16_384;

/// Transactions of one shard that may wait for rows before they start. Calls beyond that are refused. A message reads its rows
/// itself, so that it holds back those behind it. The shards of a core together have about as many as may wait for the core.
pub const COLD_STARTS: usize = 1_024;

/// Slow work (password hashes) one core may have waiting: each takes tens of milliseconds.
pub const OFFLOADS: usize = 512;

/// Bytes of one line that a function logs; the server cuts off the rest. Long enough for a document.
pub const LOG_LINE_BYTES: usize = 16 << 10;

/// Lines that one call, or one turn of a workflow, may log: more than a reader follows. One more line says that others
/// were left out.
pub const LOG_LINES_PER_CALL: u32 = 1_000;

/// Bytes of these lines. With them a call fills some pages of the log, and not the disk that keeps it.
pub const LOG_BYTES_PER_CALL: usize = 256 << 10;

/// Bytes of the log that may wait for the reader of standard error: some seconds of a busy log, held in memory. Lines
/// beyond this are dropped, because no core waits for a reader.
pub const LOG_QUEUE_BYTES: usize = 8 << 20;

/// Lines that may wait there. Each line takes some memory by itself.
pub const LOG_QUEUE_LINES: usize = 16_384;

/// Messages that a shard starts within one input: the core must soon look at other input.
pub const MESSAGES_PER_INPUT: usize = 1;

/// Bytes that one input may append to the log before workflows of its shard wait for the next input: some milliseconds
/// of copying.
pub const WORKFLOW_BYTES_PER_INPUT: usize = 8 << 20;

/// Bytes of entries that may wait for the log on one core. Beyond this, writes are refused, and workflows and messages
/// wait: the disk is full or far too slow, and the waiting entries are in memory.
pub const BATCH_BYTES: usize = 64 << 20;

/// CPU time that loading one service may take. It has its own limit beside `CPU_MS`, because it happens once, also on a
/// cold machine, and must not keep a node from starting.
pub const LOAD_CPU_MS: u64 = 2_000;

/// The same when a node starts with an app that it had accepted. Loading does not take the same time each time. An app
/// that was just within [`LOAD_CPU_MS`] once must load after every restart, on a busier or slower machine too. There is
/// a bound all the same: an app whose loading never ends must not keep a node from starting.
pub const KEPT_LOAD_CPU_MS: u64 = 10 * LOAD_CPU_MS;

/// How long an outside request may take if the call does not say.
pub const FETCH_TIMEOUT_MS: u64 = 10_000;

/// How long an outside request may take at most. For longer work, a function starts it with one request and polls it
/// with another, or the outside server reports with a signal.
pub const FETCH_LONGEST_MS: u64 = 60_000;

/// Bytes of an outside request's body: the same as a call's input.
pub const FETCH_REQUEST_BYTES: usize = 4 << 20;

/// Bytes of an outside response's body. It is held whole, and a workflow keeps it in its journal.
pub const FETCH_RESPONSE_BYTES: usize = 4 << 20;

/// Times that a workflow sends an outside request again if the call does not say. With back-off, this outlasts the
/// restart of a server.
pub const FETCH_RETRIES: u32 = 5;

/// Times a workflow may send an outside request again at most.
pub const FETCH_MOST_RETRIES: u32 = 100;

/// Bytes of an outside request's URL: what common servers take.
pub const FETCH_URL_BYTES: usize = 8 << 10;

/// Bytes in the name of a workflow's step or signal. The journal keeps such names, and they often contain a key.
pub const STEP_NAME_BYTES: usize = 256;

/// Schedules one service may declare: each is a timer that never goes away.
pub const SCHEDULES: usize = 256;

/// Lines of `allow` under `[fetch]` in an app's `millrace.toml`. Each fetch is compared with each of them.
pub const FETCH_RULES: usize = 256;

/// Headers a function may send with a fetch.
pub const FETCH_HEADERS: usize = 64;

/// Bytes of all headers that a function sends with a fetch: what servers commonly take.
pub const FETCH_HEADER_BYTES: usize = 16 << 10;

/// Headers of the response to a fetch.
pub const FETCH_RESPONSE_HEADERS: usize = 128;

/// Bytes of the status line and headers of the response to a fetch: more than servers send.
pub const FETCH_RESPONSE_HEADER_BYTES: usize = 64 << 10;

/// Connections to servers outside that one node may have, idle ones included. This number times the size of a response
/// bounds the memory that fetches hold.
pub const FETCH_CONNECTIONS: usize = 256;

/// Idle connections kept for one server by one core.
pub const FETCH_IDLE_PER_HOST: usize = 64;

/// How long an idle connection is kept. Common servers close it after 5 s; with less, requests rarely meet a connection
/// that is about to close.
pub const FETCH_IDLE_MS: u64 = 4_000;

/// Streams on one HTTP/2 connection to a server outside, at most. Servers commonly allow 100 or more; with more requests
/// another connection is opened.
pub const FETCH_HTTP2_STREAMS: usize = 100;

/// Requests of one HTTP/2 connection, after which others take a new one. hypercorn ends a connection after 1,000, and with it the
/// requests that are under way. nginx has the same limit.
pub const FETCH_HTTP2_REQUESTS: usize = 900;

/// What a server may send ahead on one HTTP/2 stream, in bytes: most turns of workers fit.
pub const FETCH_HTTP2_STREAM_WINDOW: u32 = 256 << 10;

/// What a server may send ahead on one HTTP/2 connection, in bytes. It bounds the memory of a connection nobody reads.
pub const FETCH_HTTP2_CONNECTION_WINDOW: u32 = 4 << 20;

/// Names that one node resolves at once. Each takes a thread for as long as a silent name server does not answer.
pub const FETCH_LOOKUPS: usize = 16;

/// Items of one page of a list, if the request does not say how many.
pub const PAGE_ITEMS: usize = 50;

/// Items of one page of a list at most: a page is built in memory.
pub const MOST_PAGE_ITEMS: usize = 1000;

/// Bytes of inputs and outputs that one reply about invocations or dead letters shows. Each may be megabytes, and a
/// journal or a page holds many. Any single one fits.
pub const PAGE_BYTES: usize = 16 << 20;

/// Bytes of one encoded record. A record is one field's value, and every change writes it whole.
pub const RECORD_BYTES: usize = 1 << 20;

/// Milliseconds from a record's write to its end, at most: over a hundred thousand years. JavaScript can still
/// represent the end (its latest time is 8.64e15 ms after 1970).
pub const TTL_MS: u64 = 4_000_000_000_000_000;

/// Bytes of a record type's name. The names of its helpers have a suffix more, and must still be names.
pub const TYPE_NAME_BYTES: usize = 48;

/// Types of records that one app's `millrace.toml` may name: room for any app, and a bound on a mistake.
pub const RECORD_TYPES: usize = 256;

/// Bytes of one schema's text, without its references.
pub const SCHEMA_BYTES: usize = 256 << 10;

/// Nodes of one compiled schema. It bounds all work that is done once a schema.
pub const SCHEMA_NODES: usize = 10_000;

/// Values in the smallest value of a schema, and values without bytes (nulls, empty records) in one record.
/// [`RECORD_BYTES`] does not bound values without bytes.
pub const RECORD_VALUES: usize = 100_000;

/// Bytes of JSON that one record may become. The JSON contains the names of the fields, which the record's bytes do
/// not.
pub const RECORD_JSON_BYTES: usize = 16 << 20;

/// How deep values of recursive schemas may nest. Recursion over them must fit a core's stack.
pub const VALUE_DEPTH: usize = 64;

/// Schemas in the registry. Every core reads all of it at each change.
pub const SCHEMAS: usize = 10_000;

/// Other schemas that one schema may use, directly or not. All are read to compile it.
pub const SCHEMA_REFERENCES: usize = 100;

/// Bytes of a path or predicate.
pub const PATH_BYTES: usize = 4096;

/// How deep a path or predicate nests.
pub const PATH_DEPTH: usize = 32;

/// Places one path may match.
pub const PATH_MATCHES: usize = 10_000;

/// Values that one evaluation of a path may look at, so that `..` within `{…}` cannot hold a core. A step takes some 10
/// ns, so this is 10 ms.
pub const PATH_STEPS: usize = 1_000_000;

/// Bytes a compiled regular expression of a path may take.
pub const PATH_REGEX_BYTES: usize = 64 << 10;

/// Regular expressions of one path. Each takes up to [`PATH_REGEX_BYTES`] for as long as the path is cached.
pub const PATH_PATTERNS: usize = 16;

/// Operations of one patch.
pub const PATCH_OPERATIONS: usize = 1000;

/// Steps of all operations of one patch together. A patch runs in one turn, and a core has others to serve. This takes
/// some 30 ms, and 100 ms for the operations that the count fits worst.
pub const PATCH_STEPS: usize = 3_000_000;

/// Bytes of a record's id, in which a NUL counts twice. The id is part of the name of index rows, beside a key that is
/// about as long.
pub const RECORD_ID_BYTES: usize = 512;

/// Secondary indexes, and triggers, of one type. Every write of a record runs through all of them.
pub const INDEXES: usize = 32;

/// Index rows that one record may have in one index. An index of an array's elements has one row for each element.
pub const INDEX_ROWS_PER_RECORD: usize = 1000;

/// Records one page of a query without an index may look at in each shard.
pub const QUERY_SCANNED: usize = 1000;

/// Steps that a query may take for one page, in all shards together: about 80 ms. Then the page ends, whatever is on
/// it.
pub const QUERY_STEPS: usize = 8_000_000;

/// Steps that a query may take in one shard before others have their turn: some 3 ms.
pub const QUERY_VISIT_STEPS: usize = 300_000;

/// Records asked for by one batch.
pub const BATCH_RECORDS: usize = 1000;

/// Readers of changes by server-sent events that one core serves. Each asks all shards twice a second while nothing
/// happens, and may hold one page.
pub const EVENT_STREAMS: u64 = 256;

/// Bytes in the payload of one frame of a worker: one value, or one input, and the names around it.
pub const WORKER_FRAME_BYTES: usize = 8 << 20;

/// Bytes of all frames of one attempt on a worker, each way. The server holds them until the attempt ends.
pub const WORKER_ATTEMPT_BYTES: usize = 64 << 20;

/// Bytes of all attempts on one app's workers together, each way: what arrives at a node, and what a core has to tell. Two of the
/// largest. Else a worker that ends none of its answers could have as many for each of its slots.
pub const WORKER_ATTEMPTS_BYTES: usize = 2 * WORKER_ATTEMPT_BYTES;

/// Bytes of each attempt that do not count for that limit, so that small calls go on beside the largest.
pub const WORKER_UNCOUNTED_BYTES: usize = 64 << 10;

/// Operations that one attempt on a worker may ask for. As many as a transaction may make calls.
pub const WORKER_OPERATIONS: usize = CALLS_PER_TRANSACTION;

/// Bytes of a worker's discovery document. It is read before anything about the worker is trusted.
pub const WORKER_DISCOVERY_BYTES: usize = 1 << 20;

/// Bytes of declared fields that travel with the start of an attempt. More is asked for one by one.
pub const WORKER_FIELDS_BYTES: usize = 256 << 10;

/// How long an attempt on a worker may take, unless its handler says otherwise. Its locks are held meanwhile.
pub const WORKER_DEADLINE_MS: u64 = 10_000;

/// The longest that a handler may ask for.
pub const WORKER_LONGEST_DEADLINE_MS: u64 = 300_000;

/// A worker's time ends so long before the call's own: then the error says that it was the worker.
pub const WORKER_GRACE_MS: u64 = 1_000;

/// Root transactions that one worker runs at once, unless it or its deployment says otherwise. More than a process of
/// Python serves well; a worker that has gone would hold so many entities.
pub const WORKER_CONCURRENCY: usize = 256;

/// Requests that wait for a slot of one app's workers. Each is held in memory.
pub const WORKER_WAITING: usize = 10_000;

/// How long a request waits for a slot. Whoever would wait longer is told to come again.
pub const WORKER_WAIT_MS: u64 = 1_000;

/// How long a call goes on to look for a worker once none could be reached: as long as one that restarts its listener takes.
pub const WORKER_AWAY_MS: u64 = 60;

/// Connections to workers, over all cores, for those that take one request at a time.
pub const WORKER_CONNECTIONS: usize = 1024;

/// Connections to workers with streams, over all cores, counted apart from those: a stream whose handler waits for others may
/// last as long as the handler, and what it waits for needs connections.
pub const WORKER_STREAM_CONNECTIONS: usize = 1024;

/// Voters, and learners, of one shard: five, one more while one of them is replaced, and one to spare.
pub const REPLICAS: usize = 7;

/// Bytes of entries in one message between replicas: large enough to fill a disk's write, small enough that heartbeats
/// behind it are not late. One entry alone may have [`ENTRY_BYTES`].
pub const APPEND_BYTES: usize = 1 << 20;

/// Entries in one message between replicas, so that a message of small ones is bounded, too.
pub const APPEND_ENTRIES: usize = 4096;

/// Requests and messages that may wait on one core for shards that are on their way to it: as many as may wait for a core
/// otherwise.
pub const ARRIVALS: usize = QUEUE_REQUESTS;

/// How long one of them may wait: a lost owner is replaced within a second, and one more owner may be lost meanwhile.
pub const ARRIVAL_MS: u64 = 2_000;

/// After so long without a word of a node, the calls that it has in hand are answered: two leases. The same holds for a
/// majority of a shard's replicas. A node whose process was killed is replaced sooner.
pub const UNREACHED_MS: u64 = 1_200;

/// After a link between two nodes has been down for so long, what their shards say to each other goes through a third node.
/// A connection that only broke is there again by then, and the shards of a killed process have other owners.
pub const DETOUR_MS: u64 = 300;

/// Nodes that such a message may pass. The owner of a shard hears a majority of its replicas: of five, two may be deaf to it.
pub const DETOUR_NODES: u8 = 3;

/// Bytes of log that a node of a cluster keeps for nodes that were away for a while. Whoever lacks more gets a snapshot.
pub const KEPT_LOG_BYTES: u64 = 64 << 20;

/// Bytes of rows in one part of a snapshot between nodes: a few milliseconds of a disk.
pub const SNAPSHOT_PART_BYTES: usize = 512 << 10;

/// Bytes of one message between nodes: a message of replicas with one entry of [`ENTRY_BYTES`], or a reply with one page of
/// [`PAGE_BYTES`], and the words around it.
pub const PEER_MESSAGE_BYTES: usize = ENTRY_BYTES + (1 << 20);

/// Bytes of messages of one lane that wait for one peer. On the lane of core messages, those that it has not acknowledged
/// count, too. At 1 GB/s that is 64 ms, so a peer that is only slow for a moment costs nobody an error.
pub const PEER_QUEUE_BYTES: usize = 64 << 20;

/// Messages of one lane that wait for one peer. Small ones need more memory than their bytes.
pub const PEER_QUEUE_MESSAGES: usize = 1 << 18;

/// Connections to the peers' port that have not said yet who they are. One more ends the oldest: a peer needs
/// milliseconds, and what takes longer is probably no peer.
pub const PEER_HANDSHAKES: usize = 64;

/// Handshakes that the peers' port begins in one second, from addresses of peers, and as many from all other addresses.
/// Each costs about 0.2 ms of CPU time before the stranger has shown a certificate.
pub const PEER_HANDSHAKES_PER_SECOND: u32 = 200;

/// Nodes of one cluster. Each has a link to every other one.
pub const CLUSTER_NODES: usize = 64;
