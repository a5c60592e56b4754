//! The one table of operations. The router matches against it, `/openapi.json` is written from it
//! and a test holds the guide to it.

/// What an operation does; names its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `POST /call/…`.
    Call,
    /// `POST /send/…`.
    Send,
    /// `GET /invocations/{id}`.
    Invocation,
    /// `GET /invocations`.
    Invocations,
    /// `POST /invocations/{id}/cancel`.
    Cancel,
    /// `POST /invocations/{id}/signal`.
    Signal,
    /// `GET /dead-letters`.
    DeadLetters,
    /// `POST /dead-letters/{id}/retry`.
    RetryDeadLetter,
    /// `DELETE /dead-letters/{id}`.
    DropDeadLetter,
    /// `GET /state/…`.
    State,
    /// A service's own route.
    Route,
    /// `GET /apps`.
    Apps,
    /// `PUT /apps/{app}`.
    Deploy,
    /// `DELETE /apps/{app}`.
    RemoveApp,
    /// `GET /metrics`.
    Metrics,
    /// `GET /healthz`.
    Healthz,
    /// `GET /readyz`.
    Readyz,
    /// `GET /openapi.json`.
    OpenApi,
    /// `GET /errors/{code}`.
    ErrorPage,
    /// A request that no operation answers.
    None,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 20] = [
        Kind::Call,
        Kind::Send,
        Kind::Invocation,
        Kind::Invocations,
        Kind::Cancel,
        Kind::Signal,
        Kind::DeadLetters,
        Kind::RetryDeadLetter,
        Kind::DropDeadLetter,
        Kind::State,
        Kind::Route,
        Kind::Apps,
        Kind::Deploy,
        Kind::RemoveApp,
        Kind::Metrics,
        Kind::Healthz,
        Kind::Readyz,
        Kind::OpenApi,
        Kind::ErrorPage,
        Kind::None,
    ];

    /// The name in metrics and in `operationId`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Call => "call",
            Kind::Send => "send",
            Kind::Invocation => "invocation",
            Kind::Invocations => "invocations",
            Kind::Cancel => "cancel",
            Kind::Signal => "signal",
            Kind::DeadLetters => "dead_letters",
            Kind::RetryDeadLetter => "retry_dead_letter",
            Kind::DropDeadLetter => "drop_dead_letter",
            Kind::State => "state",
            Kind::Route => "route",
            Kind::Apps => "apps",
            Kind::Deploy => "deploy",
            Kind::RemoveApp => "remove_app",
            Kind::Metrics => "metrics",
            Kind::Healthz => "healthz",
            Kind::Readyz => "readyz",
            Kind::OpenApi => "openapi",
            Kind::ErrorPage => "error_page",
            Kind::None => "none",
        }
    }
}

/// A variable part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Parameter {
    /// An app's name.
    App,
    /// A service's name.
    Service,
    /// An entity's key.
    Key,
    /// A handler's name.
    Handler,
    /// A field's name.
    Field,
    /// An invocation's or a dead letter's id.
    Id,
    /// An error code.
    Code,
    /// The rest of the path, `/` included. Only app routes have it.
    Path,
}

impl Parameter {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// The name in templates.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Parameter::App => "app",
            Parameter::Service => "service",
            Parameter::Key => "key",
            Parameter::Handler => "handler",
            Parameter::Field => "field",
            Parameter::Id => "id",
            Parameter::Code => "code",
            Parameter::Path => "path",
        }
    }

    /// What it stands for.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Parameter::App => "The app's name.",
            Parameter::Service => "The service's name.",
            Parameter::Key => {
                "The entity's key: any bytes, percent-encoded (a slash as %2F), 1 to 1024 of them once decoded."
            }
            Parameter::Handler => "The handler's name.",
            Parameter::Field => "The field's name, percent-encoded.",
            Parameter::Id => "The id, as returned by send or by a list.",
            Parameter::Code => "An error code.",
            Parameter::Path => "Whatever the service mounts there; may hold slashes.",
        }
    }
}

/// One part of a path between slashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This text.
    Literal(&'static str),
    /// Any text.
    Variable(Parameter),
}

/// What a caller needs, before the node looks closer (it knows which app a service belongs to).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Public,
    /// `call:…` for the service.
    Call,
    /// `deploy`.
    Deploy,
    /// `admin`.
    Admin,
}

impl Access {
    /// A sentence for the documentation.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Access::Public => "Needs no API key.",
            Access::Call => "Needs the role call:<app>/<service>, call:<app>/*, call:* or admin.",
            Access::Deploy => "Needs the role deploy or admin.",
            Access::Admin => "Needs the role admin.",
        }
    }
}

/// A body, as the documentation shows it.
#[derive(Clone, Copy, Debug)]
pub struct Media {
    /// The media type.
    pub content_type: &'static str,
    /// The JSON Schema of a JSON body (JSON text), or what a binary body holds.
    pub schema: &'static str,
}

/// A successful answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// When it comes.
    pub description: &'static str,
    /// Its body, unless it has none.
    pub body: Option<Media>,
}

/// A parameter of a query.
#[derive(Clone, Copy, Debug)]
pub struct QueryParameter {
    /// Its name.
    pub name: &'static str,
    /// What it means, and what holds when it is absent.
    pub description: &'static str,
    /// Its JSON Schema (JSON text).
    pub schema: &'static str,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// What it does.
    pub kind: Kind,
    /// The HTTP method; `*` for app routes, which choose their own. `GET` rows answer `HEAD` too.
    pub method: &'static str,
    /// The path.
    pub path: &'static [Segment],
    /// One line.
    pub summary: &'static str,
    /// Query parameters.
    pub query: &'static [QueryParameter],
    /// Whether `Idempotency-Key` means something.
    pub takes_idempotency_key: bool,
    /// The request's body, if it has one.
    pub request: Option<Media>,
    /// The successful answers.
    pub answers: &'static [Answer],
    /// What the caller needs.
    pub access: Access,
}

impl Operation {
    /// The path as in `/call/{service}/{key}/{handler}`.
    #[must_use]
    pub fn template(&self) -> String {
        let mut text = String::new();
        for segment in self.path {
            text.push('/');
            match segment {
                Segment::Literal(literal) => text.push_str(literal),
                Segment::Variable(parameter) => {
                    text.push('{');
                    text.push_str(parameter.as_str());
                    text.push('}');
                }
            }
        }
        text
    }
}

const APP: Segment = Segment::Variable(Parameter::App);
const SERVICE: Segment = Segment::Variable(Parameter::Service);
const KEY: Segment = Segment::Variable(Parameter::Key);
const HANDLER: Segment = Segment::Variable(Parameter::Handler);
const FIELD: Segment = Segment::Variable(Parameter::Field);
const ID: Segment = Segment::Variable(Parameter::Id);
const PATH: Segment = Segment::Variable(Parameter::Path);

const fn literal(text: &'static str) -> Segment {
    Segment::Literal(text)
}

const fn json(schema: &'static str) -> Option<Media> {
    Some(Media { content_type: "application/json", schema })
}

const fn text(content_type: &'static str) -> Option<Media> {
    Some(Media { content_type, schema: r#"{"type":"string"}"# })
}

const ANY_JSON: Option<Media> = json("true");
const BINARY: &str = r#"{"type":"string","format":"binary"}"#;

const CALL: Operation = Operation {
    kind: Kind::Call,
    method: "POST",
    path: &[literal("call"), SERVICE, KEY, HANDLER],
    summary: "Call a handler: one transaction, answered once it is durable",
    query: &[],
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
    query: &[QueryParameter {
        name: "delay_ms",
        description: "How many milliseconds to wait before the call runs; 0 when absent.",
        schema: r#"{"type":"integer","minimum":0}"#,
    }],
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
    summary: "Read all fields of an entity, committed and durable",
    takes_idempotency_key: false,
    request: None,
    answers: &[Answer {
        status: 200,
        description: "The fields; a binary value is {\"base64\": \"…\"}.",
        body: json(r#"{"type":"object"}"#),
    }],
    ..CALL
};

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

const INVOCATIONS: Operation = Operation {
    kind: Kind::Invocations,
    path: &[literal("invocations")],
    summary: "List the workflows, page by page",
    query: &[
        QueryParameter { name: "app", description: "Only this app's.", schema: r#"{"type":"string"}"# },
        QueryParameter { name: "service", description: "Only this service's.", schema: r#"{"type":"string"}"# },
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
        description: "Those that the caller may see, oldest first within each shard, without inputs, outputs and journals.",
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
    query: &[AFTER, LIMIT],
    answers: &[Answer {
        status: 200,
        description: "Those of the services that the caller may call.",
        body: json(r##"{"$ref":"#/components/schemas/DeadLetterPage"}"##),
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
    summary: "Deploy or replace an app, on all cores or not at all",
    request: Some(Media { content_type: "application/x-tar", schema: BINARY }),
    answers: &[
        Answer { status: 200, description: "Replaced.", body: json(r##"{"$ref":"#/components/schemas/App"}"##) },
        Answer {
            status: 201,
            description: "Deployed for the first time.",
            body: json(r##"{"$ref":"#/components/schemas/App"}"##),
        },
    ],
    ..APPS
};

const HEALTHZ: Operation = Operation {
    kind: Kind::Healthz,
    method: "GET",
    path: &[literal("healthz")],
    summary: "Whether requests would be served",
    query: &[],
    takes_idempotency_key: false,
    request: None,
    answers: &[Answer { status: 200, description: "They would.", body: text("text/plain") }],
    access: Access::Public,
};

/// Every operation of the front. Rows whose path starts with a variable (app routes) come last.
pub const OPERATIONS: &[Operation] = &[
    CALL,
    Operation { path: &[literal("apps"), APP, literal("call"), SERVICE, KEY, HANDLER], ..CALL },
    SEND,
    Operation { path: &[literal("apps"), APP, literal("send"), SERVICE, KEY, HANDLER], ..SEND },
    INVOCATIONS,
    Operation {
        kind: Kind::Invocation,
        path: &[literal("invocations"), ID],
        summary: "What became of a sent call or a workflow, with the workflow's journal",
        answers: &[Answer {
            status: 200,
            description: "Its status, with its output or error once it ended; of a workflow, what it has done so far too.",
            body: json(r##"{"$ref":"#/components/schemas/Invocation"}"##),
        }],
        ..STATE
    },
    CANCEL,
    SIGNAL,
    DEAD_LETTERS,
    Operation {
        kind: Kind::RetryDeadLetter,
        path: &[literal("dead-letters"), ID, literal("retry")],
        summary: "Try a dead letter again, from its first attempt",
        answers: &[Answer { status: 202, description: "It is on its way again, durably.", body: None }],
        ..CANCEL
    },
    Operation {
        kind: Kind::DropDeadLetter,
        method: "DELETE",
        path: &[literal("dead-letters"), ID],
        summary: "Drop a dead letter",
        answers: &[Answer { status: 204, description: "Dropped.", body: None }],
        ..CANCEL
    },
    STATE,
    FIELD_STATE,
    Operation { path: &[literal("apps"), APP, literal("state"), SERVICE, KEY], ..STATE },
    Operation { path: &[literal("apps"), APP, literal("state"), SERVICE, KEY, FIELD], ..FIELD_STATE },
    APPS,
    DEPLOY,
    Operation {
        kind: Kind::RemoveApp,
        method: "DELETE",
        path: &[literal("apps"), APP],
        summary: "Remove an app; its state stays and comes back with it",
        answers: &[Answer { status: 204, description: "Removed.", body: None }],
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
    ROUTE,
    Operation { path: &[literal("apps"), APP, SERVICE, PATH], ..ROUTE },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn kinds_are_numbered_in_order_and_rows_are_unique() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
        let rows: HashSet<_> = OPERATIONS.iter().map(|row| (row.method, row.template())).collect();
        assert_eq!(rows.len(), OPERATIONS.len());
    }

    #[test]
    fn every_fixed_first_segment_is_reserved() {
        for row in OPERATIONS {
            if let Segment::Literal(first) = row.path[0] {
                let is_a_name = millrace_base::Name::is_valid(first);
                assert!(!is_a_name || millrace_api::RESERVED_SERVICES.contains(&first), "{first}");
            }
        }
        assert!(millrace_api::RESERVED_SERVICES.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
