//! The rows of the table that are not about records.

use super::records::{CLASSIC, RECORDS};
use super::users::USERS;
use super::{Access, Answer, Kind, Media, Operation, Parameter, QueryParameter, Segment};

const APP: Segment = Segment::Variable(Parameter::App);
const SERVICE: Segment = Segment::Variable(Parameter::Service);
const KEY: Segment = Segment::Variable(Parameter::Key);
const HANDLER: Segment = Segment::Variable(Parameter::Handler);
pub(super) const FIELD: Segment = Segment::Variable(Parameter::Field);
const ID: Segment = Segment::Variable(Parameter::Id);
const PATH: Segment = Segment::Variable(Parameter::Path);

pub(super) const fn literal(text: &'static str) -> Segment {
    Segment::Literal(text)
}

pub(super) const fn json(schema: &'static str) -> Option<Media> {
    Some(Media { content_type: "application/json", schema })
}

pub(super) const fn text(content_type: &'static str) -> Option<Media> {
    Some(Media { content_type, schema: r#"{"type":"string"}"# })
}

pub(super) const ANY_JSON: Option<Media> = json("true");
const BINARY: &str = r#"{"type":"string","format":"binary"}"#;

const AGREED_KEYS: &str = r#"{"type":"object","required":["version","keys"],"additionalProperties":false,"properties":{"version":{"type":"integer"},"keys":{"type":"object","properties":{"anonymous":{"type":"array","items":{"type":"string"}},"keys":{"type":"array","items":{"type":"object","required":["id","secret_sha256","roles","created_ms"],"properties":{"id":{"type":"string"},"secret_sha256":{"type":"string","description":"SHA-256 of the secret's 32 bytes."},"roles":{"type":"array","items":{"type":"string"}},"created_ms":{"type":"integer"}}}}}}}}"#;

const ADVANCE: &str = r#"{"type":"object","required":["advance_ms"],"additionalProperties":false,"properties":{"advance_ms":{"type":"integer","minimum":0}}}"#;

const MOVED: &str = r#"{"type":"object","required":["ahead_ms","now_ms"],"properties":{"ahead_ms":{"type":"integer"},"now_ms":{"type":"integer"}}}"#;

pub(super) const CALL: Operation = Operation {
    kind: Kind::Call,
    method: "POST",
    path: &[literal("call"), SERVICE, KEY, HANDLER],
    summary: "Call a handler: one transaction, answered once it is durable",
    query: &[],
    headers: &[],
    takes_idempotency_key: true,
    request: ANY_JSON,
    answers: &[Answer { status: 200, description: "What the handler returned.", body: ANY_JSON }],
    access: Access::Call,
};

const SEND: Operation = Operation {
    kind: Kind::Send,
    method: "POST",
    path: &[literal("send"), SERVICE, KEY, HANDLER],
    summary: "Enqueue a call: answered once it is durable, run afterwards exactly once",
    query: &[
        QueryParameter {
            name: "delay_ms",
            description: "How many milliseconds to wait before the call runs, at most ten years; 0 when absent.",
            schema: r#"{"type":"integer","minimum":0,"maximum":315360000000}"#,
        },
        QueryParameter {
            name: "id",
            description: "The id that a workflow is to have; one that has been started with this id, handler, key and input is not started again.",
            schema: r#"{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._~:-]{0,127}$"}"#,
        },
    ],
    answers: &[Answer {
        status: 202,
        description: "Enqueued; Location names the invocation.",
        body: json(r#"{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}"#),
    }],
    ..CALL
};

const STATE: Operation = Operation {
    kind: Kind::State,
    method: "GET",
    path: &[literal("state"), SERVICE, KEY],
    summary: "Read all fields of an entity, or a page of them, committed and durable",
    takes_idempotency_key: false,
    request: None,
    answers: &[Answer {
        status: 200,
        description: "The fields; a binary value is {\"base64\": \"…\"}.",
        body: json(r#"{"type":"object"}"#),
    }],
    ..CALL
};

/// Of the state of an entity.
const PAGE_OF_FIELDS: &[QueryParameter] = &[
    QueryParameter {
        name: "prefix",
        description: "A page of fields whose names begin so.",
        schema: r#"{"type":"string"}"#,
    },
    QueryParameter {
        name: "after",
        description: "A page of fields behind the one of this name. Behind the last page comes one without fields.",
        schema: r#"{"type":"string"}"#,
    },
    LIMIT,
];

const FIELD_STATE: Operation = Operation {
    path: &[literal("state"), SERVICE, KEY, FIELD],
    summary: "Read one field of an entity, committed and durable",
    answers: &[Answer {
        status: 200,
        description: "The value: JSON, or application/octet-stream for a binary one.",
        body: ANY_JSON,
    }],
    ..STATE
};

const AFTER: QueryParameter = QueryParameter {
    name: "after",
    description: "Where the page begins: `next` of the page before; the first page when absent.",
    schema: r#"{"type":"string","minLength":1}"#,
};

const LIMIT: QueryParameter = QueryParameter {
    name: "limit",
    description: "How many items the page may hold; 50 when absent.",
    schema: r#"{"type":"integer","minimum":1,"maximum":1000,"default":50}"#,
};

const OF_APP: QueryParameter =
    QueryParameter { name: "app", description: "Only this app's.", schema: r#"{"type":"string"}"# };

const OF_SERVICE: QueryParameter =
    QueryParameter { name: "service", description: "Only this service's.", schema: r#"{"type":"string"}"# };

const INVOCATIONS: Operation = Operation {
    kind: Kind::Invocations,
    path: &[literal("invocations")],
    summary: "List the workflows, page by page",
    query: &[
        OF_APP,
        OF_SERVICE,
        QueryParameter {
            name: "key",
            description: "Only those of entities with this key; looks at its shard only.",
            schema: r#"{"type":"string"}"#,
        },
        QueryParameter { name: "handler", description: "Only this handler's.", schema: r#"{"type":"string"}"# },
        QueryParameter {
            name: "status",
            description: "Only those with this status.",
            schema: r##"{"$ref":"#/components/schemas/InvocationStatus"}"##,
        },
        AFTER,
        LIMIT,
    ],
    answers: &[Answer {
        status: 200,
        description: "Those that the caller may see, by shard; there those that have not ended first, each in the order of their ids. Without inputs, outputs and journals.",
        body: json(r##"{"$ref":"#/components/schemas/InvocationPage"}"##),
    }],
    ..STATE
};

const CANCEL: Operation = Operation {
    kind: Kind::Cancel,
    method: "POST",
    path: &[literal("invocations"), ID, literal("cancel")],
    summary: "Cancel a workflow; one that has ended stays as it is",
    answers: &[Answer {
        status: 202,
        description: "The wish is durable; the workflow compensates and ends.",
        body: None,
    }],
    ..STATE
};

const KILL: Operation = Operation {
    kind: Kind::Kill,
    path: &[literal("invocations"), ID, literal("kill")],
    summary: "End a workflow at once and undo nothing; one that has ended stays as it is",
    answers: &[Answer { status: 202, description: "The end is durable.", body: None }],
    ..CANCEL
};

const RESUME: Operation = Operation {
    kind: Kind::Resume,
    path: &[literal("invocations"), ID, literal("resume")],
    summary: "Try again now what failed of a workflow, from the first attempt",
    answers: &[Answer { status: 202, description: "What failed is forgotten, and tried again.", body: None }],
    ..CANCEL
};

const RESTART: Operation = Operation {
    kind: Kind::Restart,
    path: &[literal("invocations"), ID, literal("restart")],
    summary: "Begin a workflow again that has ended or is paused",
    query: &[
        QueryParameter {
            name: "from",
            description: "Keep the journal before the first step of this name; from the beginning when absent.",
            schema: r#"{"type":"string"}"#,
        },
        QueryParameter {
            name: "on_newest",
            description: "Run in the newest version of the app, rather than in the one it began with.",
            schema: r#"{"type":"boolean"}"#,
        },
    ],
    answers: &[Answer { status: 202, description: "It begins again, durably.", body: None }],
    ..CANCEL
};

const SIGNAL: Operation = Operation {
    kind: Kind::Signal,
    path: &[literal("invocations"), ID, literal("signal")],
    summary: "Send a signal to a workflow",
    takes_idempotency_key: true,
    request: json(r##"{"$ref":"#/components/schemas/Signal"}"##),
    answers: &[Answer {
        status: 202,
        description: "The signal is durable; the workflow gets it when it waits for it.",
        body: None,
    }],
    ..CANCEL
};

const DEAD_LETTERS: Operation = Operation {
    kind: Kind::DeadLetters,
    path: &[literal("dead-letters")],
    summary: "List messages that failed too often, page by page",
    query: &[
        QueryParameter {
            name: "waiting",
            description: "With true those that failed and are tried again instead.",
            schema: r#"{"type":"boolean","default":false}"#,
        },
        AFTER,
        LIMIT,
    ],
    answers: &[Answer {
        status: 200,
        description: "Those of the services that the caller may call.",
        body: json(r##"{"$ref":"#/components/schemas/DeadLetterPage"}"##),
    }],
    ..STATE
};

const SCHEDULES: Operation = Operation {
    kind: Kind::Schedules,
    path: &[literal("schedules")],
    summary: "List what services declare to be called at certain times, page by page",
    query: &[OF_APP, OF_SERVICE, AFTER, LIMIT],
    answers: &[Answer {
        status: 200,
        description: "Those of the services that the caller may call, by app, service and name.",
        body: json(r##"{"$ref":"#/components/schemas/SchedulePage"}"##),
    }],
    ..STATE
};

const ROUTE: Operation = Operation {
    kind: Kind::Route,
    method: "*",
    path: &[SERVICE, PATH],
    summary: "Run a route that a service exports",
    answers: &[Answer {
        status: 200,
        description: "Whatever the route answers.",
        body: Some(Media { content_type: "*/*", schema: "true" }),
    }],
    request: Some(Media { content_type: "*/*", schema: "true" }),
    ..CALL
};

const APPS: Operation = Operation {
    kind: Kind::Apps,
    method: "GET",
    path: &[literal("apps")],
    summary: "List the deployed apps",
    query: &[QueryParameter {
        name: "app",
        description: "Only this one, and its versions with what runs in each.",
        schema: r#"{"type":"string"}"#,
    }],
    takes_idempotency_key: false,
    request: None,
    answers: &[Answer {
        status: 200,
        description: "The apps, by name.",
        body: json(r##"{"type":"array","items":{"$ref":"#/components/schemas/App"}}"##),
    }],
    access: Access::Deploy,
    ..CALL
};

const DEPLOY: Operation = Operation {
    kind: Kind::Deploy,
    method: "PUT",
    path: &[literal("apps"), APP],
    summary: "Deploy or replace an app, on all cores or not at all: a tar archive of its files, or as application/json \
              `{\"worker\": URL, \"secret\"?: text, \"signature\"?: \"ed25519\", \"settings\"?: TOML}` where its handlers run in workers",
    request: Some(Media { content_type: "application/x-tar", schema: BINARY }),
    answers: &[
        Answer { status: 200, description: "Replaced.", body: json(r##"{"$ref":"#/components/schemas/App"}"##) },
        Answer {
            status: 201,
            description: "Deployed for the first time.",
            body: json(r##"{"$ref":"#/components/schemas/App"}"##),
        },
    ],
    query: &[],
    ..APPS
};

const WORKER_KEY: Operation = Operation {
    kind: Kind::WorkerKey,
    path: &[literal("apps"), APP, literal("worker-key")],
    summary: "The public key with which workers of an app verify requests, if it is deployed with `\"signature\": \"ed25519\"`",
    answers: &[Answer {
        status: 200,
        description: "The key, 32 bytes in hex digits. It is the same on all nodes, before the app is deployed too.",
        body: json(
            r#"{"type":"object","required":["signature","public_key"],"properties":{"signature":{"const":"ed25519"},"public_key":{"type":"string"}}}"#,
        ),
    }],
    query: &[],
    ..APPS
};

const DRAIN_NODE: Operation = Operation {
    kind: Kind::DrainNode,
    method: "POST",
    path: &[literal("cluster"), literal("nodes"), ID, literal("drain")],
    summary: "Move what a node holds to others; `GET /cluster` shows how far that is",
    answers: &[Answer { status: 204, description: "It begins.", body: None }],
    access: Access::Admin,
    ..HEALTHZ
};

const HEALTHZ: Operation = Operation {
    kind: Kind::Healthz,
    method: "GET",
    path: &[literal("healthz")],
    summary: "Whether requests would be served",
    query: &[],
    headers: &[],
    takes_idempotency_key: false,
    request: None,
    answers: &[Answer { status: 200, description: "They would.", body: text("text/plain") }],
    access: Access::Public,
};

/// What every node answers, whatever runs on it.
const GENERAL: &[Operation] = &[
    CALL,
    Operation { path: &[literal("apps"), APP, literal("call"), SERVICE, KEY, HANDLER], ..CALL },
    SEND,
    Operation { path: &[literal("apps"), APP, literal("send"), SERVICE, KEY, HANDLER], ..SEND },
    INVOCATIONS,
    Operation {
        kind: Kind::Invocation,
        path: &[literal("invocations"), ID],
        summary: "What became of a sent call or a workflow, with the workflow's journal",
        query: &[QueryParameter {
            name: "wait_ms",
            description: "Answer only once it has ended, or after that many milliseconds; 0, not to wait, when absent.",
            schema: r#"{"type":"integer","minimum":0,"maximum":60000}"#,
        }],
        answers: &[Answer {
            status: 200,
            description: "Its status, with its output or error once it ended; of a workflow, what it has done so far too.",
            body: json(r##"{"$ref":"#/components/schemas/Invocation"}"##),
        }],
        ..STATE
    },
    CANCEL,
    KILL,
    RESUME,
    RESTART,
    SIGNAL,
    DEAD_LETTERS,
    Operation {
        kind: Kind::RetryDeadLetter,
        path: &[literal("dead-letters"), ID, literal("retry")],
        summary: "Try a dead letter again, from its first attempt; one that waits, at once",
        answers: &[Answer { status: 202, description: "It is on its way again, durably.", body: None }],
        ..CANCEL
    },
    Operation {
        kind: Kind::DropDeadLetter,
        method: "DELETE",
        path: &[literal("dead-letters"), ID],
        summary: "Drop a dead letter, or cancel a message that failed and waits",
        answers: &[Answer { status: 204, description: "Dropped.", body: None }],
        ..CANCEL
    },
    SCHEDULES,
    Operation { query: PAGE_OF_FIELDS, ..STATE },
    FIELD_STATE,
    Operation { path: &[literal("apps"), APP, literal("state"), SERVICE, KEY], query: PAGE_OF_FIELDS, ..STATE },
    Operation { path: &[literal("apps"), APP, literal("state"), SERVICE, KEY, FIELD], ..FIELD_STATE },
    APPS,
    WORKER_KEY,
    DEPLOY,
    Operation {
        kind: Kind::ConnectWorker,
        path: &[literal("workers"), literal("connect")],
        summary: "Dial in as a worker: with `upgrade: millrace-worker` and the app's name in `millrace-app`",
        answers: &[Answer { status: 101, description: "From now on both sides send frames.", body: None }],
        access: Access::Worker,
        query: &[],
        ..APPS
    },
    Operation {
        kind: Kind::RemoveApp,
        method: "DELETE",
        path: &[literal("apps"), APP],
        summary: "Remove an app; its state stays and comes back with it",
        answers: &[Answer { status: 204, description: "Removed.", body: None }],
        query: &[],
        ..APPS
    },
    Operation {
        kind: Kind::Metrics,
        path: &[literal("metrics")],
        summary: "Metrics in the OpenMetrics text format",
        answers: &[Answer {
            status: 200,
            description: "All metrics.",
            body: text("application/openmetrics-text; version=1.0.0; charset=utf-8"),
        }],
        access: Access::Admin,
        ..HEALTHZ
    },
    Operation {
        kind: Kind::Cluster,
        path: &[literal("cluster")],
        summary: "The guidance of the cluster: its nodes, and for each shard its owner and replicas",
        answers: &[Answer { status: 200, description: "The guidance.", body: json(r#"{"type":"object"}"#) }],
        access: Access::AnyKey,
        ..HEALTHZ
    },
    Operation {
        kind: Kind::AddNode,
        method: "POST",
        path: &[literal("cluster"), literal("nodes")],
        summary: "Make room for one more node: JSON `{\"http\": ADDRESS, \"peer\": ADDRESS, \"rack\"?: NAME}`. `millrace cluster join` makes its directory",
        answers: &[Answer {
            status: 200,
            description: "The node's number, the cluster's id, and its number of shards.",
            body: json(
                r#"{"type":"object","properties":{"node":{"type":"integer"},"cluster":{"type":"string"},"shards":{"type":"integer"}}}"#,
            ),
        }],
        request: Some(Media { content_type: "application/json", schema: r#"{"type":"object"}"# }),
        access: Access::Admin,
        ..HEALTHZ
    },
    DRAIN_NODE,
    Operation {
        kind: Kind::KeepNode,
        path: &[literal("cluster"), literal("nodes"), ID, literal("keep")],
        summary: "Let a node that drains hold shards again",
        answers: &[Answer { status: 204, description: "It may.", body: None }],
        ..DRAIN_NODE
    },
    Operation {
        kind: Kind::RemoveNode,
        method: "DELETE",
        path: &[literal("cluster"), literal("nodes"), ID],
        summary: "Remove a node that has drained from the cluster, for good",
        answers: &[Answer { status: 204, description: "It is none of the cluster's any more.", body: None }],
        ..DRAIN_NODE
    },
    Operation {
        kind: Kind::ClusterKeys,
        path: &[literal("cluster"), literal("keys")],
        summary: "The API keys that the nodes of a cluster agree on, without their secrets",
        answers: &[Answer { status: 200, description: "The keys and their version.", body: json(AGREED_KEYS) }],
        access: Access::Admin,
        ..HEALTHZ
    },
    Operation {
        kind: Kind::ReplaceClusterKeys,
        method: "PUT",
        path: &[literal("cluster"), literal("keys")],
        summary: "Replace the API keys of a cluster, if they still have this version",
        request: json(AGREED_KEYS),
        answers: &[Answer { status: 204, description: "In force on all nodes that are alive.", body: None }],
        access: Access::Admin,
        ..HEALTHZ
    },
    Operation {
        kind: Kind::Backup,
        method: "POST",
        path: &[literal("backup")],
        summary: "Back up the node while it serves: all that it holds, as of one moment",
        answers: &[Answer {
            status: 200,
            description: "A tar of the data directory. Its last file, backup.json, lists the others; without it the backup is not whole.",
            body: Some(Media { content_type: "application/x-tar", schema: BINARY }),
        }],
        access: Access::Admin,
        ..HEALTHZ
    },
    Operation {
        kind: Kind::AdvanceClock,
        method: "POST",
        path: &[literal("clock.json")],
        summary: "Only with `millrace serve --test-clock`: move the node's time ahead",
        request: json(ADVANCE),
        answers: &[Answer {
            status: 200,
            description: "By how much the clock is ahead of the machine's, and its time.",
            body: json(MOVED),
        }],
        access: Access::Admin,
        ..HEALTHZ
    },
    HEALTHZ,
    Operation {
        kind: Kind::Readyz,
        path: &[literal("readyz")],
        summary: "Whether writes would be served too",
        ..HEALTHZ
    },
    Operation {
        kind: Kind::OpenApi,
        path: &[literal("openapi.json")],
        summary: "This contract as an OpenAPI 3.1 document",
        answers: &[Answer { status: 200, description: "The document.", body: json(r#"{"type":"object"}"#) }],
        ..HEALTHZ
    },
    Operation {
        kind: Kind::ErrorPage,
        path: &[literal("errors"), Segment::Variable(Parameter::Code)],
        summary: "What an error code means and what to do about it",
        answers: &[Answer { status: 200, description: "The page.", body: text("text/markdown; charset=utf-8") }],
        ..HEALTHZ
    },
];

/// App routes.
const ROUTES: &[Operation] = &[ROUTE, Operation { path: &[literal("apps"), APP, SERVICE, PATH], ..ROUTE }];

/// How many rows there are.
const COUNT: usize = GENERAL.len() + USERS.len() + RECORDS.len() + CLASSIC.len() + ROUTES.len();

const ALL: [Operation; COUNT] = {
    let mut all = [CALL; COUNT];
    let parts = [GENERAL, USERS, RECORDS, CLASSIC, ROUTES];
    let (mut part, mut count) = (0, 0);
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[count] = parts[part][index];
            count += 1;
            index += 1;
        }
        part += 1;
    }
    all
};

/// Every operation of the front. Rows whose path starts with a variable (classic URLs and app
/// routes) come last.
pub const OPERATIONS: &[Operation] = &ALL;
