//! Types of records: `/schemas/{type}`, and how the registry is changed.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use millrace_api as api;
use millrace_api::{Deployments, Permission, Principal, RECORDS_APP, RecordOperation, RecordRequest};
use millrace_base::{Error, ErrorCode};
use millrace_registry::{RecordType, Refusal, Registry, SchemaVersion, TypeChange, TypeSettings};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::body;
use crate::classic::is_passed_over;
use crate::local::Records;
use crate::media;
use crate::request::{PREFERENCE_APPLIED, Reply, Request};
use crate::url;
use crate::write::prefers;

const MINIMAL: &str = "return=minimal";

/// How often a change is tried again because others changed the registry at the same time. Each
/// time, one of them has succeeded.
const ATTEMPTS: usize = 32;

/// Why a change of the registry did not happen.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The registry does not allow it.
    Refused(Refusal),
    /// Only the Schema Registry's callers are told, with this number of its own.
    Numbered(u32, String),
    /// Anything else.
    Failed(Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => refusal.into(),
            Failure::Numbered(_, message) => Error::new(ErrorCode::BadRequest, message),
            Failure::Failed(error) => error,
        }
    }
}

/// Checks that a caller may change schemas.
fn may_change(who: &Principal) -> Result<(), Error> {
    if who.may(Permission::Deploy) {
        return Ok(());
    }
    Err(Error::new(ErrorCode::Forbidden, "changing types and schemas needs the role deploy or admin"))
}

impl Records {
    /// Changes the registry: reads it, runs `change` on a copy and replaces it, unless somebody
    /// else did meanwhile, in which case all that is done again.
    pub(crate) async fn change<B: Deployments, T, R: Into<Failure>>(
        &self,
        backend: &B,
        who: &Principal,
        change: impl Fn(&mut Registry) -> Result<T, R>,
    ) -> Result<T, Failure> {
        may_change(who)?;
        // Most who register a schema find it there already; they need no turn.
        let (tried, is_done) = self.try_change(backend, &change).await?;
        if is_done {
            return Ok(tried);
        }
        let _turn = self.turns.next().await;
        for _ in 0..ATTEMPTS {
            let (version, registry) = self.registry(backend).await?;
            let mut next = (*registry).clone();
            let answer = change(&mut next).map_err(Into::into)?;
            if next == *registry {
                return Ok(answer);
            }
            match backend.replace_system_app(who, RECORDS_APP, version, next.to_files()).await {
                Ok(version) => {
                    self.keep_registry(version, Rc::new(next));
                    return Ok(answer);
                }
                Err(error) if error.code == ErrorCode::PreconditionFailed => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = "others change schemas all the time; try again";
        Err(Error::new(ErrorCode::Overloaded, message).into())
    }

    /// What a change would answer, and whether it would change nothing.
    async fn try_change<B: Deployments, T, R: Into<Failure>>(
        &self,
        backend: &B,
        change: &impl Fn(&mut Registry) -> Result<T, R>,
    ) -> Result<(T, bool), Failure> {
        let (_, registry) = self.registry(backend).await?;
        let mut next = (*registry).clone();
        let answer = change(&mut next).map_err(Into::into)?;
        Ok((answer, next == *registry))
    }

    /// `GET /schemas`, for people: the types.
    pub(crate) async fn types<B: Deployments + api::Records>(
        &self,
        backend: &B,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        #[derive(Serialize)]
        struct Types<'a> {
            types: Vec<TypeBody<'a>>,
        }
        url::no_parameters(request.query)?;
        let (_, registry) = self.registry(backend).await?;
        let types = registry.types().map(|found| TypeBody::new(&registry, found)).collect();
        json(request.headers, StatusCode::OK, &Types { types })
    }

    /// `GET /schemas/{type}`.
    pub(crate) async fn get_type<B: Deployments + api::Records>(
        &self,
        backend: &B,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        url::no_parameters(request.query)?;
        let (_, registry) = self.registry(backend).await?;
        let name = request.type_name()?;
        let progress = match registry.record_type(&name) {
            Ok(_) => progress(backend, &name).await,
            Err(_) => None,
        };
        let body = whole(&registry, &name, progress)?;
        Ok(Reply::new(request.headers, StatusCode::OK, media::JSON, body))
    }

    /// `PUT /schemas/{type}`.
    pub(crate) async fn put_type<B: Deployments + api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let mut dry_run = None;
        for (name, value) in url::pairs(request.query) {
            match name {
                "dry_run" => url::once(&mut dry_run, name, url::flag(name, value)?)?,
                _ => return Err(url::unknown(name)),
            }
        }
        media::json_body(&request.headers)?;
        let name = request.type_name()?;
        let change = read_change(request.text()?)?;
        let put = |registry: &mut Registry| {
            let put = registry.put_type(&name, &change)?;
            Ok::<_, Refusal>((put.is_new, whole(registry, &name, None)?))
        };
        if dry_run.unwrap_or_default() {
            may_change(who)?;
            let ((_, body), _) = self.try_change(backend, &put).await?;
            return Ok(Reply::new(request.headers, StatusCode::OK, media::JSON, body));
        }
        let (is_new, body) = self.change(backend, who, put).await?;
        if prefers(&request.headers, MINIMAL) {
            let status = if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
            let mut reply = Reply::empty(request.headers, status);
            reply.headers.insert(PREFERENCE_APPLIED.clone(), HeaderValue::from_static(MINIMAL));
            return Ok(reply);
        }
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Reply::new(request.headers, status, media::JSON, body))
    }

    /// `DELETE /schemas/{type}`, and the classic `delschema`.
    pub(crate) async fn delete_type<B: Deployments + api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
        is_classic: bool,
    ) -> Result<Reply, Error> {
        let mut force = None;
        for (name, value) in url::pairs(request.query) {
            match name {
                "force" => url::once(&mut force, name, url::flag(name, value)?)?,
                _ if is_classic && is_passed_over(name, value)? => {}
                _ => return Err(url::unknown(name)),
            }
        }
        may_change(who)?;
        let (name, force) = (request.type_name()?, force.unwrap_or_default());
        // Who may delete a type may know whether it is empty, and needs no other role for that.
        let has_records = !force && backend.has_records(&Principal::unrestricted(), &name).await?;
        self.change(backend, who, |registry| registry.delete_type(&name, has_records, force)).await?;
        if is_classic {
            return Ok(Reply::ok(request.headers));
        }
        Ok(Reply::empty(request.headers, StatusCode::NO_CONTENT))
    }

    /// `POST /schemas/{type}/sweep`.
    pub(crate) async fn sweep<B: Deployments + api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        url::no_parameters(request.query)?;
        may_change(who)?;
        backend.record_sweep(who, &request.type_name()?).await?;
        Ok(Reply::empty(request.headers, StatusCode::ACCEPTED))
    }
}

/// Reads a change of a type, or a schema alone.
fn read_change(text: &str) -> Result<TypeChange, Error> {
    #[derive(serde::Deserialize)]
    struct Kind<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
    }
    let is_object = text.trim_start().starts_with('{');
    let is_schema = !is_object || body::read::<Kind<'_>>(text.as_bytes(), "a schema or settings")?.kind.is_some();
    if !is_schema {
        return Ok(TypeChange::from_json(text)?);
    }
    body::read::<&RawValue>(text.as_bytes(), "a schema or settings")?;
    Ok(TypeChange { schema: Some(text.to_owned()), ..TypeChange::default() })
}

/// A type as it is shown.
#[derive(Serialize)]
struct TypeBody<'a> {
    #[serde(rename = "type")]
    name: &'a str,
    version: u32,
    schema_id: u32,
    compatibility: &'static str,
    #[serde(flatten)]
    settings: &'a TypeSettings,
}

impl<'a> TypeBody<'a> {
    fn new(registry: &Registry, found: RecordType<'a>) -> Self {
        Self {
            name: found.name,
            version: found.version,
            schema_id: found.schema_id(),
            compatibility: registry.effective_compatibility(found.name).as_str(),
            settings: found.settings,
        }
    }
}

#[derive(Serialize)]
struct WholeType<'a> {
    #[serde(flatten)]
    summary: TypeBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep_progress: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_progress: Option<Progress>,
    schema: Option<&'a RawValue>,
    versions: Vec<VersionBody<'a>>,
}

#[derive(Serialize)]
struct VersionBody<'a> {
    version: u32,
    id: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    references: &'a [millrace_registry::Reference],
}

/// A schema's text as it is.
fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}

impl<'a> VersionBody<'a> {
    fn new(version: SchemaVersion<'a>) -> Self {
        Self {
            version: version.version,
            id: version.schema.id(),
            deleted: version.is_deleted,
            schema: raw(version.schema.text()),
            references: version.schema.references(),
        }
    }
}

/// In how many shards each index is complete, by its name; the records themselves under the empty name.
type Progress = BTreeMap<String, Box<RawValue>>;

/// What shards cannot say now is no reason not to show the type.
async fn progress<B: Deployments + api::Records>(backend: &B, type_name: &str) -> Option<Progress> {
    let request = RecordRequest { type_name, id: None, operation: RecordOperation::Indexes, idempotency_key: None };
    // Who may see a type may know that, and needs no other role for it.
    let reply = backend.record(&Principal::unrestricted(), request).reply().await.ok()?;
    serde_json::from_slice(&reply.body).ok()
}

/// All of a type.
fn whole(registry: &Registry, name: &str, mut progress: Option<Progress>) -> Result<Bytes, Refusal> {
    let found = registry.record_type(name)?;
    let sweep_progress = progress.as_mut().and_then(|progress| progress.remove(""));
    let index_progress = progress.filter(|_| !found.settings.indexes.is_empty());
    let body = WholeType {
        summary: TypeBody::new(registry, found),
        sweep_progress,
        index_progress,
        schema: raw(found.schema.text()),
        versions: found.versions().map(VersionBody::new).collect(),
    };
    // Strings, numbers and JSON text: writing them to memory cannot fail.
    Ok(serde_json::to_vec(&body).unwrap_or_default().into())
}

fn json(headers: HeaderMap, status: StatusCode, value: &impl Serialize) -> Result<Reply, Error> {
    let text = serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("the reply cannot be written: {error}")))?;
    Ok(Reply::new(headers, status, media::JSON, text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_alone_and_settings_are_told_apart() {
        for bare in [r#"{"type":"record","name":"R","fields":[]}"#, r#" ["null"]"#, r#""string""#] {
            assert_eq!(read_change(bare).expect(bare).schema.as_deref(), Some(bare));
        }
        let change = read_change(r#"{"schema":{"type":"record", "name":"R"},"ttl_ms":5}"#).expect("settings");
        assert_eq!(change.schema.as_deref(), Some(r#"{"type":"record", "name":"R"}"#));
        assert_eq!(change.ttl_ms, Some(Some(5)));
        for (bad, code) in [
            ("", ErrorCode::InvalidInput),
            ("{", ErrorCode::InvalidInput),
            ("type x {}", ErrorCode::InvalidInput),
            (r#"{"schemas":1}"#, ErrorCode::BadRequest),
            (r#"{"create":"never"}"#, ErrorCode::BadRequest),
        ] {
            assert_eq!(read_change(bad).map(|_| ()).map_err(|error| error.code), Err(code), "{bad}");
        }
    }
}
