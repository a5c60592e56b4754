//! The one table of operations. The router matches against it, `/openapi.json` is written from it
//! and a test holds the guide to it.

mod records;
mod table;
mod users;

pub use table::OPERATIONS;

/// What an operation does; names its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// `POST /invocations/{id}/kill`.
    Kill,
    /// `POST /invocations/{id}/resume`.
    Resume,
    /// `POST /invocations/{id}/restart`.
    Restart,
    /// `POST /invocations/{id}/signal`.
    Signal,
    /// `GET /dead-letters`.
    DeadLetters,
    /// `POST /dead-letters/{id}/retry`.
    RetryDeadLetter,
    /// `DELETE /dead-letters/{id}`.
    DropDeadLetter,
    /// `GET /schedules`.
    Schedules,
    /// `GET /state/…`.
    State,
    /// A service's own route.
    Route,
    /// `GET /apps`.
    Apps,
    /// `GET /workers/connect`.
    ConnectWorker,
    /// `GET /apps/{app}/worker-key`.
    WorkerKey,
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
    /// `GET /cluster`.
    Cluster,
    /// `POST /cluster/nodes`.
    AddNode,
    /// `POST /cluster/nodes/{id}/drain`.
    DrainNode,
    /// `POST /cluster/nodes/{id}/keep`.
    KeepNode,
    /// `DELETE /cluster/nodes/{id}`.
    RemoveNode,
    /// `GET /cluster/keys`.
    ClusterKeys,
    /// `PUT /cluster/keys`.
    ReplaceClusterKeys,
    /// `GET /openapi.json`.
    OpenApi,
    /// `GET /errors/{code}`.
    ErrorPage,
    /// `POST /backup`.
    Backup,
    /// `POST /clock.json`.
    AdvanceClock,
    /// `POST /s3/users`.
    S3AddUser,
    /// `GET /s3/users`.
    S3Users,
    /// `DELETE /s3/users/{user}`.
    S3RemoveUser,
    /// `POST /s3/users/{user}/keys`.
    S3AddKey,
    /// `GET /s3/users/{user}/keys`.
    S3Keys,
    /// `DELETE /s3/users/{user}/keys/{access_key}`.
    S3RevokeKey,
    /// `GET /s3/buckets`.
    S3Buckets,
    /// `GET /s3/buckets/{bucket}`.
    S3Bucket,
    /// `PUT /s3/buckets/{bucket}/quota`.
    S3SetQuota,
    /// `PUT /s3/buckets/{bucket}/app`.
    S3SetApp,
    /// `PUT /s3/buckets/{bucket}/slices`.
    S3SetSlices,
    /// A request that no operation answers.
    None,
    /// Something about records or their schemas.
    Records(millrace_records::Operation),
}

/// The kinds that are not about records, in the order of their numbers, with their names.
const KINDS: [(Kind, &str); 46] = [
    (Kind::Call, "call"),
    (Kind::Send, "send"),
    (Kind::Invocation, "invocation"),
    (Kind::Invocations, "invocations"),
    (Kind::Cancel, "cancel"),
    (Kind::Signal, "signal"),
    (Kind::DeadLetters, "dead_letters"),
    (Kind::RetryDeadLetter, "retry_dead_letter"),
    (Kind::DropDeadLetter, "drop_dead_letter"),
    (Kind::Schedules, "schedules"),
    (Kind::State, "state"),
    (Kind::Route, "route"),
    (Kind::Apps, "apps"),
    (Kind::Deploy, "deploy"),
    (Kind::RemoveApp, "remove_app"),
    (Kind::Metrics, "metrics"),
    (Kind::Healthz, "healthz"),
    (Kind::Readyz, "readyz"),
    (Kind::OpenApi, "openapi"),
    (Kind::ErrorPage, "error_page"),
    (Kind::S3AddUser, "s3_add_user"),
    (Kind::S3Users, "s3_users"),
    (Kind::S3RemoveUser, "s3_remove_user"),
    (Kind::S3AddKey, "s3_add_key"),
    (Kind::S3Keys, "s3_keys"),
    (Kind::S3RevokeKey, "s3_revoke_key"),
    (Kind::S3Buckets, "s3_buckets"),
    (Kind::S3Bucket, "s3_bucket"),
    (Kind::S3SetQuota, "s3_set_quota"),
    (Kind::S3SetApp, "s3_set_app"),
    (Kind::ConnectWorker, "connect_worker"),
    (Kind::Cluster, "cluster"),
    (Kind::Backup, "backup"),
    (Kind::Kill, "kill"),
    (Kind::Resume, "resume"),
    (Kind::ClusterKeys, "cluster_keys"),
    (Kind::ReplaceClusterKeys, "replace_cluster_keys"),
    (Kind::None, "none"),
    (Kind::AddNode, "add_node"),
    (Kind::DrainNode, "drain_node"),
    (Kind::KeepNode, "keep_node"),
    (Kind::RemoveNode, "remove_node"),
    (Kind::Restart, "restart"),
    (Kind::S3SetSlices, "s3_set_slices"),
    (Kind::AdvanceClock, "advance_clock"),
    (Kind::WorkerKey, "worker_key"),
];

impl Kind {
    /// How many there are.
    pub const COUNT: usize = KINDS.len() + millrace_records::Operation::COUNT;

    /// Every kind, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Kind> {
        KINDS.iter().map(|row| row.0).chain(millrace_records::Operation::all().map(Kind::Records))
    }

    /// Its number.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Kind::Call => 0,
            Kind::Send => 1,
            Kind::Invocation => 2,
            Kind::Invocations => 3,
            Kind::Cancel => 4,
            Kind::Signal => 5,
            Kind::DeadLetters => 6,
            Kind::RetryDeadLetter => 7,
            Kind::DropDeadLetter => 8,
            Kind::Schedules => 9,
            Kind::State => 10,
            Kind::Route => 11,
            Kind::Apps => 12,
            Kind::Deploy => 13,
            Kind::RemoveApp => 14,
            Kind::Metrics => 15,
            Kind::Healthz => 16,
            Kind::Readyz => 17,
            Kind::OpenApi => 18,
            Kind::ErrorPage => 19,
            Kind::S3AddUser => 20,
            Kind::S3Users => 21,
            Kind::S3RemoveUser => 22,
            Kind::S3AddKey => 23,
            Kind::S3Keys => 24,
            Kind::S3RevokeKey => 25,
            Kind::S3Buckets => 26,
            Kind::S3Bucket => 27,
            Kind::S3SetQuota => 28,
            Kind::S3SetApp => 29,
            Kind::ConnectWorker => 30,
            Kind::Cluster => 31,
            Kind::Backup => 32,
            Kind::Kill => 33,
            Kind::Resume => 34,
            Kind::ClusterKeys => 35,
            Kind::ReplaceClusterKeys => 36,
            Kind::None => 37,
            Kind::AddNode => 38,
            Kind::DrainNode => 39,
            Kind::KeepNode => 40,
            Kind::RemoveNode => 41,
            Kind::Restart => 42,
            Kind::S3SetSlices => 43,
            Kind::AdvanceClock => 44,
            Kind::WorkerKey => 45,
            Kind::Records(operation) => KINDS.len() + operation as usize,
        }
    }

    /// Whether it is a GET that changes something: two classic URLs do. It is no HEAD, and no page of
    /// elsewhere may lead its reader to it.
    #[must_use]
    pub fn is_get_that_changes(self) -> bool {
        use millrace_records::Operation::{ClassicDeleteSchema, ClassicDeleteScript};
        matches!(self, Kind::Records(ClassicDeleteSchema | ClassicDeleteScript))
    }

    /// The name in metrics and in `operationId`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Records(operation) => operation.as_str(),
            _ => KINDS[self.index()].1,
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
    /// An invocation's or a dead letter's id, or a node's number.
    Id,
    /// An error code.
    Code,
    /// The rest of the path, `/` included. Only app routes have it.
    Path,
    /// A type of records.
    Type,
    /// A record's id.
    RecordId,
    /// A schema's id in the registry.
    SchemaId,
    /// A subject of the registry.
    Subject,
    /// A version of a subject.
    Version,
    /// A script's name.
    Script,
    /// A user of S3: name or id.
    User,
    /// An access key of S3.
    AccessKey,
    /// A bucket of S3.
    Bucket,
}

impl Parameter {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Every parameter, in the order of their numbers.
    pub const ALL: [Parameter; 17] = [
        Parameter::App,
        Parameter::Service,
        Parameter::Key,
        Parameter::Handler,
        Parameter::Field,
        Parameter::Id,
        Parameter::Code,
        Parameter::Path,
        Parameter::Type,
        Parameter::RecordId,
        Parameter::SchemaId,
        Parameter::Subject,
        Parameter::Version,
        Parameter::Script,
        Parameter::User,
        Parameter::AccessKey,
        Parameter::Bucket,
    ];

    /// The name in templates.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Parameter::App => "app",
            Parameter::Service => "service",
            Parameter::Key => "key",
            Parameter::Handler => "handler",
            Parameter::Field => "field",
            Parameter::Id | Parameter::RecordId | Parameter::SchemaId => "id",
            Parameter::Code => "code",
            Parameter::Path => "path",
            Parameter::Type => "type",
            Parameter::Subject => "subject",
            Parameter::Version => "version",
            Parameter::Script => "script",
            Parameter::User => "user",
            Parameter::AccessKey => "access_key",
            Parameter::Bucket => "bucket",
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
            Parameter::Type => "The type's name.",
            Parameter::RecordId => {
                "The record's id: any bytes, percent-encoded (a slash as %2F), 1 to 1024 of them once decoded."
            }
            Parameter::SchemaId => "The schema's id in the registry.",
            Parameter::Subject => "The subject's name, percent-encoded.",
            Parameter::Version => "The version's number, or latest.",
            Parameter::Script => "The script's name.",
            Parameter::User => "The user's name or canonical id, percent-encoded.",
            Parameter::AccessKey => "The access key.",
            Parameter::Bucket => "The bucket's name.",
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
    /// `worker`.
    Worker,
    /// `admin`.
    Admin,
    /// `call:records/…` for the type.
    Records,
    /// Any key, where the server has some.
    AnyKey,
}

impl Access {
    /// A sentence for the documentation.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Access::Public => "Needs no API key.",
            Access::Call => {
                "Needs the role call:<app>/<service>, call:<app>/*, call:* or admin; queries and state need no more than read: in place of call:."
            }
            Access::Deploy => "Needs the role deploy or admin.",
            Access::Worker => "Needs the role worker, deploy or admin.",
            Access::Admin => "Needs the role admin.",
            Access::Records => {
                "Needs the role call:records/<type>, call:records/*, call:* or admin; reading needs no more than read: in place of call:."
            }
            Access::AnyKey => "Needs an API key, whatever its roles.",
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

/// A parameter of a query, or a header of a request.
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
    /// Headers that mean something, beside `Idempotency-Key`.
    pub headers: &'static [QueryParameter],
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn kinds_are_numbered_in_order_and_rows_are_unique() {
        for (index, kind) in Kind::all().enumerate() {
            assert_eq!(kind.index(), index);
        }
        assert_eq!(Kind::all().count(), Kind::COUNT);
        for (index, parameter) in Parameter::ALL.iter().enumerate() {
            assert_eq!(*parameter as usize, index);
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
