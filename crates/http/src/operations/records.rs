//! The rows of the table about records and their schemas: native, Schema Registry, classic.

use millrace_records::Operation as Op;

use super::table::{ANY_JSON, CALL, FIELD, json, literal, text};
use super::{Access, Answer, Kind, Media, Operation, Parameter, QueryParameter, Segment};

const TYPE: Segment = Segment::Variable(Parameter::Type);
const RECORD: Segment = Segment::Variable(Parameter::RecordId);
const SUBJECT: Segment = Segment::Variable(Parameter::Subject);
const VERSION: Segment = Segment::Variable(Parameter::Version);
const SCHEMA: Segment = Segment::Variable(Parameter::SchemaId);
const SCRIPT: Segment = Segment::Variable(Parameter::Script);

const TEXT: &str = r#"{"type":"string"}"#;
const FLAG: &str = r#"{"type":"boolean","default":false}"#;
const COUNT: &str = r#"{"type":"integer","minimum":1}"#;
const OBJECT: Option<Media> = json(r#"{"type":"object"}"#);

const fn parameter(name: &'static str, description: &'static str, schema: &'static str) -> QueryParameter {
    QueryParameter { name, description, schema }
}

const fn answer(status: u16, description: &'static str, body: Option<Media>) -> Answer {
    Answer { status, description, body }
}

const PATH_PARAMETERS: QueryParameter =
    parameter("p.*", "The value of a parameter, as JSON: p.name is $name in the path or predicate.", "true");
const LIMIT: QueryParameter = parameter(
    "limit",
    "How many items the page may hold; 50 when absent.",
    r#"{"type":"integer","minimum":1,"maximum":1000,"default":50}"#,
);
const CURSOR: QueryParameter = parameter("cursor", "Where the page begins: `cursor` of the page before.", TEXT);
const TTL_MS: QueryParameter = parameter(
    "ttl_ms",
    "How many milliseconds after this write the record is to vanish, or never; as it was when absent.",
    r#"{"oneOf":[{"type":"integer","minimum":1},{"const":"never"}]}"#,
);

const ACCEPT: QueryParameter = parameter(
    "Accept",
    "application/json (the default), application/avro+json or, for a whole record, avro/binary.",
    TEXT,
);
const IF_MATCH: QueryParameter =
    parameter("If-Match", "Only if the record has one of these tags; * if it is there.", TEXT);
const IF_NONE_MATCH: QueryParameter =
    parameter("If-None-Match", "Only if the record has none of these tags; * if it is not there.", TEXT);
const TTL: QueryParameter = parameter("Millrace-TTL", "The same as ttl_ms.", TEXT);
const PREFER: QueryParameter =
    parameter("Prefer", "return=representation: answer with the record as it is afterwards.", TEXT);

const GET_RECORD: Operation = Operation {
    kind: Kind::Records(Op::GetRecord),
    method: "GET",
    path: &[literal("records"), TYPE, RECORD],
    summary: "Read a record, or what a path selects in it",
    query: &[
        parameter("path", "What to select: a JSON array of what it matches. The whole record when absent.", TEXT),
        PATH_PARAMETERS,
    ],
    headers: &[ACCEPT, IF_MATCH, IF_NONE_MATCH],
    takes_idempotency_key: false,
    request: None,
    answers: &[
        answer(200, "The record; ETag, Millrace-Schema-Id and, if it expires, Millrace-Expires say more.", ANY_JSON),
        answer(304, "It has a tag that If-None-Match lists.", None),
    ],
    access: Access::Records,
};

const WRITE: Operation = Operation {
    query: &[TTL_MS],
    headers: &[ACCEPT, IF_MATCH, IF_NONE_MATCH, TTL, PREFER],
    takes_idempotency_key: true,
    request: ANY_JSON,
    ..GET_RECORD
};

const FIND: Operation = Operation {
    kind: Kind::Records(Op::FindRecords),
    path: &[literal("records"), TYPE],
    summary: "List the records of a type, or those that a predicate holds for",
    query: &[
        parameter("where", "A predicate of the path language, such as .age > $age. All records when absent.", TEXT),
        PATH_PARAMETERS,
        parameter("order", "A path to a scalar, - before it for the reverse. By id when absent.", TEXT),
        parameter("prefix", "Only ids that start with this.", TEXT),
        CURSOR,
        LIMIT,
        parameter("ids_only", "Leave the records out.", FLAG),
        parameter("explain", "Say how the query would run instead of running it.", FLAG),
    ],
    headers: &[ACCEPT],
    answers: &[answer(200, "The page, and the cursor of the next one.", OBJECT)],
    ..GET_RECORD
};

const GET_SCHEMA: Operation = Operation {
    kind: Kind::Records(Op::GetSchema),
    path: &[literal("schemas"), TYPE],
    summary: "Read a type: its schema, all versions of it, its settings",
    query: &[],
    headers: &[],
    answers: &[answer(200, "The type.", OBJECT)],
    access: Access::AnyKey,
    ..GET_RECORD
};

/// A read of the Schema Registry.
const REGISTRY: Operation =
    Operation { answers: &[answer(200, "As the Confluent Schema Registry answers.", ANY_JSON)], ..GET_SCHEMA };

/// A change of the Schema Registry.
const REGISTRY_CHANGE: Operation = Operation { method: "POST", request: OBJECT, access: Access::Deploy, ..REGISTRY };

const DELETED: QueryParameter = parameter("deleted", "What is deleted softly as well.", FLAG);
const NORMALIZE: QueryParameter = parameter("normalize", "Compare and keep the schema's normal form.", FLAG);
const PERMANENT: QueryParameter = parameter("permanent", "Remove for good what is deleted softly.", FLAG);

const DELETED_ONLY: QueryParameter = parameter("deletedOnly", "Only what is deleted softly.", FLAG);
const OFFSET: QueryParameter =
    parameter("offset", "Schema Registry: how many to leave out.", r#"{"type":"integer","default":0}"#);
const MOST: QueryParameter =
    parameter("limit", "Schema Registry: at most so many; negative for all.", r#"{"type":"integer","default":-1}"#);
const OF_SUBJECT: QueryParameter = parameter("subject", "Only this subject's.", TEXT);

const SUBJECTS: Operation = Operation {
    kind: Kind::Records(Op::Subjects),
    path: &[literal("subjects")],
    summary: "Schema Registry: list the subjects",
    query: &[parameter("subjectPrefix", "Only those that start with this.", TEXT), DELETED, DELETED_ONLY, OFFSET, MOST],
    ..REGISTRY
};

/// `/records/…`, `/schemas/…` and the Schema Registry's URLs.
pub(super) const RECORDS: &[Operation] = &[
    FIND,
    Operation {
        kind: Kind::Records(Op::GetRecords),
        method: "POST",
        path: &[literal("records"), TYPE, literal("batch")],
        summary: "Read several records, as they were at one time",
        query: &[],
        request: json(
            r#"{"type":"object","required":["ids"],"additionalProperties":false,"properties":{"ids":{"type":"array","maxItems":1000,"items":{"oneOf":[{"type":"string"},{"type":"object","required":["base64"],"properties":{"base64":{"type":"string"}}}]}}}}"#,
        ),
        answers: &[answer(200, "For each id, in order, its record or the error of reading it.", ANY_JSON)],
        ..FIND
    },
    Operation {
        kind: Kind::Records(Op::RecordChanges),
        path: &[literal("records"), TYPE, literal("changes")],
        summary: "Read the changes of a type's records, as a page or as server-sent events",
        query: &[
            parameter(
                "cursor",
                "Where to go on: `cursor` of the page before; now for what comes next; the oldest when absent.",
                TEXT,
            ),
            LIMIT,
        ],
        headers: &[
            parameter("Accept", "text/event-stream for server-sent events.", TEXT),
            parameter("Last-Event-ID", "The id of the last event seen, instead of the cursor.", TEXT),
        ],
        answers: &[answer(200, "The changes, and the cursor behind them.", OBJECT)],
        ..FIND
    },
    GET_RECORD,
    Operation {
        kind: Kind::Records(Op::PutRecord),
        method: "PUT",
        summary: "Replace a record, or make it; what JSON leaves out gets its default",
        answers: &[answer(200, "Replaced.", ANY_JSON), answer(201, "Made.", ANY_JSON)],
        ..WRITE
    },
    Operation {
        kind: Kind::Records(Op::PatchRecord),
        method: "PATCH",
        summary: "Change parts of a record: all of these operations or none",
        request: json(r##"{"$ref":"#/components/schemas/Patch"}"##),
        answers: &[answer(200, "Changed; Millrace-Matched counts the places.", ANY_JSON)],
        ..WRITE
    },
    Operation {
        kind: Kind::Records(Op::DeleteRecord),
        method: "DELETE",
        summary: "Delete a record",
        query: &[],
        headers: &[IF_MATCH, IF_NONE_MATCH],
        request: None,
        answers: &[answer(204, "It is gone.", None)],
        ..WRITE
    },
    Operation {
        kind: Kind::Records(Op::Schemas),
        path: &[literal("schemas")],
        summary: "List the types; for clients of the Schema Registry, schemas",
        query: &[
            parameter("subjectPrefix", "Schema Registry: only subjects that start with this.", TEXT),
            parameter("deleted", "Schema Registry: what is deleted softly as well.", FLAG),
            parameter("latestOnly", "Schema Registry: only the latest versions.", FLAG),
            OFFSET,
            MOST,
        ],
        answers: &[answer(200, "The types.", ANY_JSON)],
        ..GET_SCHEMA
    },
    Operation {
        kind: Kind::Records(Op::RegistryRoot),
        path: &[literal("")],
        summary: "Where to look; for clients of the Schema Registry, whether anybody is there",
        access: Access::Public,
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::SchemaTypes),
        path: &[literal("schemas"), literal("types")],
        summary: "Schema Registry: the kinds of schemas",
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::SchemaById),
        path: &[literal("schemas"), literal("ids"), SCHEMA],
        summary: "Schema Registry: a schema by its id",
        query: &[parameter("fetchMaxId", "Say the largest id as well.", FLAG)],
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::SchemaTextById),
        path: &[literal("schemas"), literal("ids"), SCHEMA, literal("schema")],
        summary: "Schema Registry: only the text of a schema",
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::SchemaVersionsById),
        path: &[literal("schemas"), literal("ids"), SCHEMA, literal("versions")],
        summary: "Schema Registry: the subjects and versions that are a schema",
        query: &[OF_SUBJECT, DELETED, OFFSET, MOST],
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::SchemaSubjectsById),
        path: &[literal("schemas"), literal("ids"), SCHEMA, literal("subjects")],
        summary: "Schema Registry: the subjects that have a schema",
        query: &[OF_SUBJECT, DELETED, OFFSET, MOST],
        ..REGISTRY
    },
    GET_SCHEMA,
    Operation {
        kind: Kind::Records(Op::PutSchema),
        method: "PUT",
        summary: "Make a type, give it a new version of its schema, or change its settings",
        query: &[parameter("dry_run", "Only say what would come of it.", FLAG)],
        headers: &[parameter("Prefer", "return=minimal: answer without a body.", TEXT)],
        request: OBJECT,
        answers: &[
            answer(200, "Changed, or as it was; or, with dry_run, what it would be.", OBJECT),
            answer(201, "Made.", OBJECT),
            answer(204, "Changed, or as it was; with return=minimal.", None),
        ],
        access: Access::Deploy,
        ..GET_SCHEMA
    },
    Operation {
        kind: Kind::Records(Op::DeleteSchema),
        method: "DELETE",
        summary: "Delete a type; its records must be gone",
        query: &[parameter("force", "Even if it has records: they stay stored, and come back with the type.", FLAG)],
        answers: &[answer(204, "It is gone.", None)],
        access: Access::Deploy,
        ..GET_SCHEMA
    },
    Operation {
        kind: Kind::Records(Op::SweepRecords),
        method: "POST",
        path: &[literal("schemas"), TYPE, literal("sweep")],
        summary: "Bring all records of a type to its current schema now, in the background",
        answers: &[answer(202, "It has begun.", None)],
        access: Access::Deploy,
        ..GET_SCHEMA
    },
    SUBJECTS,
    Operation {
        kind: Kind::Records(Op::LookUpSubject),
        path: &[literal("subjects"), SUBJECT],
        summary: "Schema Registry: whether a subject has a schema, and under which version",
        query: &[NORMALIZE, DELETED],
        access: Access::AnyKey,
        ..REGISTRY_CHANGE
    },
    Operation {
        kind: Kind::Records(Op::DeleteSubject),
        method: "DELETE",
        path: &[literal("subjects"), SUBJECT],
        summary: "Schema Registry: delete a subject",
        query: &[PERMANENT],
        request: None,
        ..REGISTRY_CHANGE
    },
    Operation {
        kind: Kind::Records(Op::SubjectVersions),
        path: &[literal("subjects"), SUBJECT, literal("versions")],
        summary: "Schema Registry: list the versions of a subject",
        query: &[DELETED, DELETED_ONLY, OFFSET, MOST],
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::RegisterVersion),
        path: &[literal("subjects"), SUBJECT, literal("versions")],
        summary: "Schema Registry: register a schema",
        query: &[NORMALIZE],
        ..REGISTRY_CHANGE
    },
    Operation {
        kind: Kind::Records(Op::GetVersion),
        path: &[literal("subjects"), SUBJECT, literal("versions"), VERSION],
        summary: "Schema Registry: one version of a subject",
        query: &[DELETED],
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::DeleteVersion),
        method: "DELETE",
        path: &[literal("subjects"), SUBJECT, literal("versions"), VERSION],
        summary: "Schema Registry: delete one version of a subject",
        query: &[PERMANENT],
        request: None,
        ..REGISTRY_CHANGE
    },
    Operation {
        kind: Kind::Records(Op::VersionText),
        path: &[literal("subjects"), SUBJECT, literal("versions"), VERSION, literal("schema")],
        summary: "Schema Registry: only the text of a version",
        query: &[DELETED],
        ..REGISTRY
    },
    Operation {
        kind: Kind::Records(Op::VersionReferencedBy),
        path: &[literal("subjects"), SUBJECT, literal("versions"), VERSION, literal("referencedby")],
        summary: "Schema Registry: the ids of schemas that refer to a version",
        query: &[OFFSET, MOST],
        ..REGISTRY
    },
    GET_CONFIG,
    PUT_CONFIG,
    DELETE_CONFIG,
    Operation { path: CONFIG_OF_SUBJECT, query: &[DEFAULT_TO_GLOBAL], ..GET_CONFIG },
    Operation { path: CONFIG_OF_SUBJECT, ..PUT_CONFIG },
    Operation { path: CONFIG_OF_SUBJECT, ..DELETE_CONFIG },
    GET_MODE,
    PUT_MODE,
    DELETE_MODE,
    Operation { path: MODE_OF_SUBJECT, query: &[DEFAULT_TO_GLOBAL], ..GET_MODE },
    Operation { path: MODE_OF_SUBJECT, ..PUT_MODE },
    Operation { path: MODE_OF_SUBJECT, ..DELETE_MODE },
    CHECK,
    Operation {
        path: &[literal("compatibility"), literal("subjects"), SUBJECT, literal("versions"), VERSION],
        summary: "Schema Registry: whether a schema would fit one version",
        ..CHECK
    },
    Operation {
        kind: Kind::Records(Op::ClassicPing),
        path: &[literal("ping")],
        summary: "Classic: whether anybody is there",
        answers: &[answer(200, "pong", text("text/plain; charset=UTF-8"))],
        access: Access::Public,
        ..GET_SCHEMA
    },
    Operation {
        kind: Kind::Records(Op::ClassicPutSchema),
        method: "POST",
        path: &[literal("putschema"), TYPE],
        summary: "Classic: make a type whose records are made on first touch, or give it a new schema",
        query: &[parameter("fullname", "Which type of a file that defines several.", TEXT), TIMEOUT],
        access: Access::Deploy,
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicDeleteSchema),
        path: &[literal("delschema"), TYPE],
        summary: "Classic: delete a type; its records must be gone",
        query: &[
            parameter("force", "Even if it has records: they stay stored, and come back with the type.", FLAG),
            TIMEOUT,
        ],
        answers: OK,
        access: Access::Deploy,
        ..GET_SCHEMA
    },
];

const DEFAULT_TO_GLOBAL: QueryParameter =
    parameter("defaultToGlobal", "What holds for all, where the subject has none of its own.", FLAG);

const CONFIG_OF_SUBJECT: &[Segment] = &[literal("config"), SUBJECT];
const MODE_OF_SUBJECT: &[Segment] = &[literal("mode"), SUBJECT];

const GET_CONFIG: Operation = Operation {
    kind: Kind::Records(Op::GetConfig),
    path: &[literal("config")],
    summary: "Schema Registry: the compatibility level",
    ..REGISTRY
};

const PUT_CONFIG: Operation = Operation {
    kind: Kind::Records(Op::PutConfig),
    method: "PUT",
    path: &[literal("config")],
    summary: "Schema Registry: set the compatibility level",
    ..REGISTRY_CHANGE
};

const DELETE_CONFIG: Operation = Operation {
    kind: Kind::Records(Op::DeleteConfig),
    method: "DELETE",
    summary: "Schema Registry: go back to the compatibility level that holds otherwise",
    request: None,
    ..PUT_CONFIG
};

const GET_MODE: Operation = Operation {
    kind: Kind::Records(Op::GetMode),
    path: &[literal("mode")],
    summary: "Schema Registry: the mode",
    ..REGISTRY
};

const PUT_MODE: Operation = Operation {
    kind: Kind::Records(Op::PutMode),
    method: "PUT",
    path: &[literal("mode")],
    summary: "Schema Registry: set the mode",
    query: &[parameter("force", "Set it whatever is registered.", FLAG)],
    ..REGISTRY_CHANGE
};

const DELETE_MODE: Operation = Operation {
    kind: Kind::Records(Op::DeleteMode),
    method: "DELETE",
    summary: "Schema Registry: go back to the mode that holds otherwise",
    query: &[],
    request: None,
    ..PUT_MODE
};

const CHECK: Operation = Operation {
    kind: Kind::Records(Op::CheckCompatibility),
    path: &[literal("compatibility"), literal("subjects"), SUBJECT, literal("versions")],
    summary: "Schema Registry: whether a schema would fit what a subject has",
    query: &[parameter("verbose", "Say where it does not.", FLAG), NORMALIZE],
    access: Access::AnyKey,
    ..REGISTRY_CHANGE
};

const OK: &[Answer] = &[answer(200, "OK", text("text/plain; charset=UTF-8"))];

const BENCHMARK: QueryParameter =
    parameter("benchmark_only", "A random id from 1 to this instead of the one in the path, each as likely.", COUNT);

const TIMEOUT: QueryParameter = parameter("timeout", "Means nothing any more.", COUNT);

const CLASSIC_GET: Operation = Operation {
    kind: Kind::Records(Op::ClassicGet),
    path: &[TYPE, literal("get"), RECORD],
    summary: "Classic: read a record",
    query: &[BENCHMARK, TIMEOUT],
    headers: &[],
    answers: &[answer(200, "The record.", ANY_JSON)],
    ..GET_RECORD
};

const CLASSIC_WRITE: Operation = Operation {
    method: "POST",
    query: &[TIMEOUT],
    request: text("text/plain"),
    answers: OK,
    access: Access::Records,
    headers: &[],
    ..CALL
};

const CLASSIC_PUT: Operation = Operation {
    kind: Kind::Records(Op::ClassicPut),
    path: &[TYPE, literal("put"), RECORD],
    summary: "Classic: replace a record",
    query: &[BENCHMARK, TIMEOUT],
    request: ANY_JSON,
    ..CLASSIC_WRITE
};

/// The URLs of the server before this one that begin with a type. An app's service of the type's
/// name goes before them.
pub(super) const CLASSIC: &[Operation] = &[
    CLASSIC_GET,
    Operation {
        path: &[TYPE, literal("get"), RECORD, FIELD],
        summary: "Classic: read one field of a record",
        ..CLASSIC_GET
    },
    CLASSIC_PUT,
    Operation {
        path: &[TYPE, literal("put"), RECORD, FIELD],
        summary: "Classic: replace one field of a record",
        query: &[BENCHMARK, TIMEOUT],
        ..CLASSIC_PUT
    },
    Operation {
        kind: Kind::Records(Op::ClassicSelect),
        path: &[TYPE, literal("select"), RECORD],
        summary: "Classic: what the path in the body selects in a record",
        takes_idempotency_key: false,
        answers: &[answer(200, "A JSON array of what it matches.", ANY_JSON)],
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicUpdate),
        path: &[TYPE, literal("update"), RECORD],
        summary: "Classic: change what a path matches; the body is the path, a line break, JSON",
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicInsert),
        path: &[TYPE, literal("insert"), RECORD],
        summary: "Classic: add an element or an entry; the body is the path, a line break, JSON",
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicInsertAll),
        path: &[TYPE, literal("insertall"), RECORD],
        summary: "Classic: add several elements or entries; the body is the path, a line break, JSON",
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicDelete),
        path: &[TYPE, literal("delete"), RECORD],
        summary: "Classic: remove the elements and entries that the path in the body matches",
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicClear),
        path: &[TYPE, literal("clear"), RECORD],
        summary: "Classic: empty the arrays and maps that the path in the body matches",
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicPutScript),
        path: &[TYPE, literal("putscript"), FIELD, SCRIPT],
        summary: "Classic: run a script after changes of a field",
        takes_idempotency_key: false,
        access: Access::Deploy,
        ..CLASSIC_WRITE
    },
    Operation {
        kind: Kind::Records(Op::ClassicDeleteScript),
        method: "GET",
        path: &[TYPE, literal("delscript"), FIELD, SCRIPT],
        summary: "Classic: remove a script",
        takes_idempotency_key: false,
        request: None,
        access: Access::Deploy,
        ..CLASSIC_WRITE
    },
];
