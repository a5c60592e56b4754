//! The Confluent Schema Registry's URLs.
//!
//! Its clients tell errors apart by `error_code`, so these URLs answer errors in its words and
//! numbers. Query parameters that are not known are passed over, as there: clients of several
//! vendors send some of their own.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use millrace_api::{Deployments, Object, Principal};
use millrace_base::{Error, ErrorCode};
use millrace_registry::{
    Against, Level, Mode, NewSchema, Reference, Refusal, RefusalKind, Registry, SchemaVersion, Shown, StoredSchema,
    VersionNumber,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Operation;
use crate::body;
use crate::local::Records;
use crate::media;
use crate::request::{Reply, Request};
use crate::types::Failure;
use crate::url;

/// What a client sends to register, look up or check a schema.
#[derive(Deserialize)]
struct SchemaBody {
    schema: String,
    #[serde(default, rename = "schemaType")]
    schema_type: Option<String>,
    #[serde(default)]
    references: Option<Vec<Object<Reference>>>,
    /// Clients send -1 or 0 where they mean none.
    #[serde(default)]
    id: Option<i64>,
    #[serde(default)]
    version: Option<i64>,
}

#[derive(Deserialize)]
struct ConfigBody {
    compatibility: String,
}

#[derive(Deserialize)]
struct ModeBody {
    mode: String,
}

/// The parameters that mean something here.
#[derive(Default)]
struct RegistryParameters {
    deleted: bool,
    deleted_only: bool,
    permanent: bool,
    normalize: bool,
    verbose: bool,
    force: bool,
    default_to_global: bool,
    fetch_max_id: bool,
    latest_only: bool,
    prefix: String,
    subject: Option<String>,
    offset: usize,
    limit: Option<usize>,
}

impl RegistryParameters {
    fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut asked = Self::default();
        for (name, value) in url::pairs(query) {
            let flag = match name {
                "deleted" | "lookupDeletedSchema" => &mut asked.deleted,
                "deletedOnly" => &mut asked.deleted_only,
                "permanent" => &mut asked.permanent,
                "normalize" => &mut asked.normalize,
                "verbose" => &mut asked.verbose,
                "force" => &mut asked.force,
                "defaultToGlobal" => &mut asked.default_to_global,
                "fetchMaxId" => &mut asked.fetch_max_id,
                "latestOnly" => &mut asked.latest_only,
                "subjectPrefix" => {
                    asked.prefix = url::form_text(value)?.into_owned();
                    continue;
                }
                "subject" => {
                    asked.subject = Some(url::form_text(value)?.into_owned()).filter(|subject| !subject.is_empty());
                    continue;
                }
                // Negative numbers ask for all.
                "offset" => {
                    asked.offset = count(name, value)?.unwrap_or_default();
                    continue;
                }
                "limit" => {
                    asked.limit = count(name, value)?;
                    continue;
                }
                _ => continue,
            };
            *flag = url::flag(name, value)?;
        }
        Ok(asked)
    }

    fn shown(&self) -> Shown {
        match (self.deleted_only, self.deleted) {
            (true, _) => Shown::Deleted,
            (false, true) => Shown::All,
            (false, false) => Shown::Live,
        }
    }

    fn page<T>(&self, items: impl Iterator<Item = T>) -> Vec<T> {
        items.skip(self.offset).take(self.limit.unwrap_or(usize::MAX)).collect()
    }
}

/// A number of items; `None` for a negative one.
fn count(name: &str, value: &str) -> Result<Option<usize>, Error> {
    match value.strip_prefix('-').unwrap_or(value) {
        _ if value.is_empty() => Ok(None),
        digits if digits.len() < value.len() => url::number(name, digits).map(|_| None),
        digits => url::number(name, digits).map(|number| Some(usize::try_from(number).unwrap_or(usize::MAX))),
    }
}

/// Reads a body as clients of the Schema Registry send it.
fn read_body<T: for<'de> Deserialize<'de>>(request: &Request<'_>, expected: &str) -> Result<T, Error> {
    media::registry_body(&request.headers)?;
    body::read::<Object<T>>(&request.body, expected).map(|read| read.0)
}

fn read_schema(request: &Request<'_>, asked: &RegistryParameters) -> Result<NewSchema, Error> {
    let sent: SchemaBody = read_body(request, "{\"schema\":\"…\"}")?;
    let positive = |number: Option<i64>| number.filter(|number| *number > 0).and_then(|number| number.try_into().ok());
    Ok(NewSchema {
        text: sent.schema,
        schema_type: sent.schema_type,
        references: sent.references.into_iter().flatten().map(|reference| reference.0).collect(),
        normalize: asked.normalize,
        id: positive(sent.id),
        version: positive(sent.version),
    })
}

fn version(request: &Request<'_>) -> Result<VersionNumber, Failure> {
    Ok(VersionNumber::parse(&url::decode_text(request.item)?)?)
}

fn schema_id(request: &Request<'_>) -> Result<u32, Failure> {
    request.item.parse().map_err(|_| refused(RefusalKind::SchemaNotFound, "a schema's id is a number"))
}

fn refused(kind: RefusalKind, message: impl Into<String>) -> Failure {
    Failure::Refused(Refusal { kind, message: message.into(), points: Vec::new() })
}

fn with_references(mut value: Value, schema: &StoredSchema) -> Value {
    if !schema.references().is_empty() {
        value["references"] = json!(schema.references());
    }
    value
}

fn version_body(found: &SchemaVersion<'_>) -> Value {
    let schema = found.schema;
    let value =
        json!({ "subject": found.subject, "version": found.version, "id": schema.id(), "schema": schema.text() });
    with_references(value, schema)
}

/// What a read answers: JSON, or the text of a schema as it is.
enum Answer {
    Json(Value),
    Text(String),
}

impl Records {
    /// Answers one of the Schema Registry's operations.
    pub(crate) async fn registry_operation<B: Deployments>(
        &self,
        backend: &B,
        who: &Principal,
        operation: Operation,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let answer = match operation {
            Operation::RegisterVersion
            | Operation::DeleteSubject
            | Operation::DeleteVersion
            | Operation::PutConfig
            | Operation::DeleteConfig
            | Operation::PutMode
            | Operation::DeleteMode => self.change_registry(backend, who, operation, &request).await.map(Answer::Json),
            _ => {
                let (_, registry) = self.registry(backend).await?;
                read_registry(&registry, operation, &request)
            }
        };
        match answer {
            Ok(Answer::Json(value)) => {
                Ok(Reply::new(request.headers, StatusCode::OK, media::REGISTRY, value.to_string().into()))
            }
            Ok(Answer::Text(text)) => Ok(Reply::new(request.headers, StatusCode::OK, media::REGISTRY, text.into())),
            Err(Failure::Refused(refusal)) => Ok(refusal_reply(request, refusal.kind.number(), &refusal.message)),
            Err(Failure::Numbered(number, message)) => Ok(refusal_reply(request, number, &message)),
            Err(Failure::Failed(error)) => Err(error),
        }
    }

    async fn change_registry<B: Deployments>(
        &self,
        backend: &B,
        who: &Principal,
        operation: Operation,
        request: &Request<'_>,
    ) -> Result<Value, Failure> {
        let subject = request.subject()?;
        let own = (!subject.is_empty()).then_some(&*subject);
        let asked = RegistryParameters::read(request.query)?;
        match operation {
            Operation::RegisterVersion => {
                let schema = read_schema(request, &asked)?;
                let registered = self.change(backend, who, |registry| registry.register(&subject, &schema)).await?;
                Ok(json!({ "id": registered.id }))
            }
            Operation::DeleteSubject => {
                let permanent = asked.permanent;
                let change = |registry: &mut Registry| registry.delete_subject(&subject, permanent);
                Ok(json!(self.change(backend, who, change).await?))
            }
            Operation::DeleteVersion => {
                let (number, permanent) = (version(request)?, asked.permanent);
                let change = |registry: &mut Registry| registry.delete_version(&subject, number, permanent);
                Ok(json!(self.change(backend, who, change).await?))
            }
            Operation::PutConfig => {
                let sent: ConfigBody = read_body(request, "{\"compatibility\":\"…\"}")?;
                let level = Level::parse(&sent.compatibility)?;
                self.change(backend, who, |registry| registry.set_compatibility(own, Some(level))).await?;
                Ok(json!({ "compatibility": level.as_str() }))
            }
            Operation::DeleteConfig => {
                let before = self.change(backend, who, |registry| {
                    let before = config(registry, own)?;
                    registry.set_compatibility(own, None)?;
                    Ok::<_, Failure>(before)
                });
                Ok(json!({ "compatibilityLevel": before.await?.as_str() }))
            }
            Operation::PutMode => {
                let sent: ModeBody = read_body(request, "{\"mode\":\"…\"}")?;
                let (mode, force) = (Mode::parse(&sent.mode)?, asked.force);
                self.change(backend, who, |registry| registry.set_mode(own, Some(mode), force)).await?;
                Ok(json!({ "mode": mode.as_str() }))
            }
            _ => {
                let before = self.change(backend, who, |registry| {
                    let before = mode(registry, own)?;
                    registry.set_mode(own, None, false)?;
                    Ok::<_, Failure>(before)
                });
                Ok(json!({ "mode": before.await?.as_str() }))
            }
        }
    }
}

fn refusal_reply(request: Request<'_>, number: u32, message: &str) -> Reply {
    let (status, kind, body) = numbered(number, message);
    Reply::new(request.headers, status, kind, body)
}

/// The level that was set.
fn config(registry: &Registry, subject: Option<&str>) -> Result<Level, Failure> {
    registry.compatibility(subject).ok_or_else(|| not_configured(40408, subject, "compatibility level"))
}

/// The mode that was set.
fn mode(registry: &Registry, subject: Option<&str>) -> Result<Mode, Failure> {
    registry.mode(subject).ok_or_else(|| not_configured(40409, subject, "mode"))
}

fn not_configured(number: u32, subject: Option<&str>, what: &str) -> Failure {
    let shown: String = subject.unwrap_or_default().chars().take(100).collect();
    Failure::Numbered(number, format!("subject {shown:?} has no {what} of its own"))
}

fn read_registry(registry: &Registry, operation: Operation, request: &Request<'_>) -> Result<Answer, Failure> {
    let asked = RegistryParameters::read(request.query)?;
    let subject = request.subject()?;
    let own = (!subject.is_empty()).then_some(&*subject);
    let value = match operation {
        Operation::SchemaTypes => json!(["AVRO"]),
        Operation::Schemas => schemas(registry, &asked),
        Operation::SchemaById => {
            let schema = registry.schema(schema_id(request)?)?;
            let mut value = with_references(json!({ "schema": schema.text() }), schema);
            if asked.fetch_max_id {
                value["maxId"] = json!(largest_id(registry));
            }
            value
        }
        Operation::SchemaTextById => return Ok(Answer::Text(registry.schema(schema_id(request)?)?.text().to_owned())),
        Operation::SchemaVersionsById => {
            let versions = versions_of_id(registry, request, &asked)?;
            let versions = versions.map(|(subject, version)| json!({ "subject": subject, "version": version }));
            json!(asked.page(versions))
        }
        Operation::SchemaSubjectsById => {
            let subjects: BTreeSet<&str> =
                versions_of_id(registry, request, &asked)?.map(|(subject, _)| subject).collect();
            json!(asked.page(subjects.into_iter()))
        }
        Operation::Subjects => {
            let subjects = registry.subjects(asked.shown());
            json!(asked.page(subjects.into_iter().filter(|name| name.starts_with(&asked.prefix))))
        }
        Operation::LookUpSubject => {
            version_body(&registry.lookup(&subject, &read_schema(request, &asked)?, asked.deleted)?)
        }
        Operation::SubjectVersions => json!(asked.page(registry.versions(&subject, asked.shown())?.into_iter())),
        Operation::GetVersion => version_body(&registry.version(&subject, version(request)?, asked.deleted)?),
        Operation::VersionText => {
            let found = registry.version(&subject, version(request)?, asked.deleted)?;
            return Ok(Answer::Text(found.schema.text().to_owned()));
        }
        Operation::VersionReferencedBy => {
            json!(asked.page(registry.referenced_by(&subject, version(request)?)?.into_iter()))
        }
        Operation::GetConfig => {
            let level = match own {
                Some(subject) if asked.default_to_global => registry.effective_compatibility(subject),
                _ => config(registry, own)?,
            };
            json!({ "compatibilityLevel": level.as_str() })
        }
        Operation::GetMode => {
            let found = match own {
                Some(subject) if asked.default_to_global => registry.effective_mode(subject),
                _ => mode(registry, own)?,
            };
            json!({ "mode": found.as_str() })
        }
        Operation::CheckCompatibility => check(registry, &subject, request, &asked)?,
        _ => return Err(Error::new(ErrorCode::Internal, "this operation is none of the registry's").into()),
    };
    Ok(Answer::Json(value))
}

/// The subjects and versions that are a schema; of one subject where that is asked for.
fn versions_of_id<'a>(
    registry: &'a Registry,
    request: &Request<'_>,
    asked: &'a RegistryParameters,
) -> Result<impl Iterator<Item = (&'a str, u32)>, Failure> {
    let versions = registry.versions_with(schema_id(request)?, asked.shown())?;
    let wanted = asked.subject.as_deref();
    Ok(versions.into_iter().filter(move |(subject, _)| wanted.is_none_or(|wanted| wanted == *subject)))
}

fn check(
    registry: &Registry,
    subject: &str,
    request: &Request<'_>,
    asked: &RegistryParameters,
) -> Result<Value, Failure> {
    let against = if request.item.is_empty() { Against::Subject } else { Against::Version(version(request)?) };
    let points = registry.test_compatibility(subject, against, &read_schema(request, asked)?)?;
    let mut value = json!({ "is_compatible": points.is_empty() });
    if asked.verbose {
        value["messages"] = json!(points);
    }
    Ok(value)
}

/// `GET /schemas` for clients of the Schema Registry.
fn schemas(registry: &Registry, asked: &RegistryParameters) -> Value {
    let mut found: Vec<SchemaVersion<'_>> = registry.all_versions(&asked.prefix, asked.shown()).collect();
    if asked.latest_only {
        // Ordered by subject and number: the last one of each subject stays.
        let mut latest: Vec<SchemaVersion<'_>> = Vec::new();
        for version in found {
            if latest.last().is_some_and(|last| last.subject == version.subject) {
                latest.pop();
            }
            latest.push(version);
        }
        found = latest;
    }
    asked.page(found.iter()).into_iter().map(version_body).collect()
}

fn largest_id(registry: &Registry) -> u32 {
    registry.all_versions("", Shown::All).map(|version| version.schema.id()).max().unwrap_or_default()
}

/// An error as the Schema Registry writes it: `number` is a status, or one with two digits more.
fn numbered(number: u32, message: &str) -> (StatusCode, HeaderValue, Bytes) {
    let status = if number < 1000 { number } else { number / 100 };
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let body = json!({ "error_code": number, "message": message }).to_string();
    (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), media::REGISTRY, body.into())
}

/// Status, media type and body of any other error, for the Schema Registry's clients. Those that it has no number for
/// have `status`, and two digits that are no number of its either.
#[must_use]
pub fn registry_error(error: &Error, status: StatusCode) -> (StatusCode, HeaderValue, Bytes) {
    let number = match error.code {
        ErrorCode::Unauthorized => 40101,
        ErrorCode::Forbidden => 40301,
        ErrorCode::UnknownRoute => 40400,
        ErrorCode::MethodNotAllowed => 40501,
        ErrorCode::RequestTimeout => 40801,
        ErrorCode::TooLarge => 41301,
        ErrorCode::UnsupportedMediaType => 41501,
        ErrorCode::HeadersTooLarge => 43101,
        ErrorCode::Internal => 50001,
        code if code.is_retryable() => 50301,
        _ => u32::from(status.as_u16()),
    };
    numbered(number, &error.message)
}

/// Whether a path is one of the Schema Registry's, even if nothing is there.
#[must_use]
pub fn is_registry_path(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    match parts.next() {
        Some("subjects" | "config" | "mode" | "compatibility") => true,
        Some("schemas") => {
            let (second, is_deep) = (parts.next(), parts.next().is_some());
            matches!(second, Some("types")) || (is_deep && matches!(second, Some("ids" | "guids")))
        }
        _ => false,
    }
}

/// What the Schema Registry answers at some URLs whose first part may be the name of somebody's service: always
/// the same. There is one context, and no cluster.
#[must_use]
pub fn registry_constant(path: &str) -> Option<(HeaderValue, Bytes)> {
    let body: &'static str = match path {
        "/contexts" => r#"["."]"#,
        "/v1/metadata/id" => r#"{"id":"","scope":{"path":[],"clusters":{}}}"#,
        "/v1/metadata/version" => concat!(r#"{"version":""#, env!("CARGO_PKG_VERSION"), r#"","commitId":""}"#),
        _ => return None,
    };
    Some((media::REGISTRY, Bytes::from_static(body.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_numbers_that_clients_know() {
        for (number, status) in [(40401, 404), (42201, 422), (409, 409), (50001, 500), (422, 422)] {
            let (answered, kind, body) = numbered(number, "why");
            assert_eq!((answered.as_u16(), kind), (status, media::REGISTRY));
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body, json!({ "error_code": number, "message": "why" }));
        }
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        let asked = RegistryParameters::read(Some("deleted=True&format=&limit=-1&offset=2&subjectPrefix=a%2Fb"))
            .expect("valid");
        assert!(asked.deleted && asked.limit.is_none() && asked.offset == 2 && asked.prefix == "a/b");
        for bad in ["deleted=maybe", "limit=few", "limit=--1", "limit=-", "offset=1.5", "subject=%zz"] {
            assert!(RegistryParameters::read(Some(bad)).is_err(), "{bad}");
        }
        let all = RegistryParameters::read(Some("limit=-2&offset=-7&subject=")).expect("valid");
        assert_eq!((all.limit, all.offset, all.subject), (None, 0, None));
    }

    #[test]
    fn the_registrys_paths_are_known_from_others() {
        for path in [
            "/subjects",
            "/subjects/a/b/c",
            "/config/x/y",
            "/mode",
            "/compatibility",
            "/schemas/types",
            "/schemas/ids/1/x",
        ] {
            assert!(is_registry_path(path), "{path}");
        }
        for path in
            ["/", "/schemas", "/schemas/ids", "/schemas/guids", "/schemas/a", "/records/subjects/1", "subjects", ""]
        {
            assert!(!is_registry_path(path), "{path}");
        }
    }
}
