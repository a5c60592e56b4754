//! Reading records: one, several, by a query, and their changes as pages.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use millrace_api as api;
use millrace_api::{Begun, Form, Object, Principal, RecordOperation, RecordQuery, RecordReply, RecordRequest};
use millrace_base::{Error, ErrorCode, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Operation;
use crate::classic;
use crate::condition;
use crate::local::Records;
use crate::media;
use crate::request::{EXPIRES, MATCHED, Reply, Request, RequestFacts, SCHEMA_ID};
use crate::url::{self, refused};

/// The values of `$name` in a path, gathered from `?p.name=JSON`: a JSON object, or empty.
#[derive(Default)]
pub(crate) struct Parameters(String);

impl Parameters {
    /// Takes `p.name=JSON`; false for a parameter that is none of these.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<bool, Error> {
        let name = url::decode_text(name)?;
        let Some(name) = name.strip_prefix("p.") else {
            return Ok(false);
        };
        let value = url::form_text(value)?;
        let json: &RawValue = serde_json::from_str(&value).map_err(|error| {
            let message = format!(
                "the value of p.{name} is not JSON ({error}): text is written in quotes, as p.{name}=%22text%22"
            );
            Error::new(ErrorCode::InvalidInput, message)
        })?;
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        let name = serde_json::Value::from(name);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{name}:{json}");
        Ok(true)
    }

    /// The object.
    pub(crate) fn finish(mut self) -> String {
        if !self.0.is_empty() {
            self.0.push('}');
        }
        self.0
    }
}

/// What one record is asked for.
pub(crate) struct One<'a> {
    type_name: Cow<'a, str>,
    id: Id<'a>,
    form: Form,
    field: Cow<'a, str>,
    selection: Option<Box<Selection<'a>>>,
}

struct Selection<'a> {
    path: Cow<'a, str>,
    parameters: String,
}

/// A read that has begun: how its reply is told.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    is_classic: bool,
    form: Form,
    is_selection: bool,
}

/// A record's id: the one in the path, or one that was drawn.
enum Id<'a> {
    Given(Cow<'a, [u8]>),
    Drawn([u8; 20], usize),
}

impl Id<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Id::Given(id) => id,
            Id::Drawn(digits, length) => &digits[..*length],
        }
    }
}

impl One<'_> {
    pub(crate) fn operation(&self) -> RecordOperation<'_> {
        match &self.selection {
            Some(selected) => {
                RecordOperation::Select { path: &selected.path, parameters: &selected.parameters, form: self.form }
            }
            None if self.field.is_empty() => RecordOperation::Get { form: self.form },
            None => RecordOperation::GetField { field: &self.field, form: self.form },
        }
    }
}

impl Records {
    /// Begins one of the operations for which [`Operation::is_read`] holds. Of `request`, no more is needed then than
    /// its headers.
    ///
    /// # Errors
    /// Those of the operation that are known before it begins.
    pub fn begin_read<B: api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        operation: Operation,
        request: &Request<'_>,
    ) -> Result<(Begun<RecordReply>, Read), Error> {
        let is_classic = operation == Operation::ClassicGet;
        let one = self.one(operation, request)?;
        let asked = RecordRequest {
            type_name: &one.type_name,
            id: Some(one.id.bytes()),
            operation: one.operation(),
            idempotency_key: None,
        };
        let read = Read { is_classic, form: one.form, is_selection: one.selection.is_some() };
        Ok((backend.record(who, asked), read))
    }

    /// The reply to what [`Records::begin_read`] began; the map of the request's headers is emptied and reused.
    ///
    /// # Errors
    /// If the request's headers set a condition that makes no sense.
    pub fn end_read(
        &self,
        read: Read,
        (seen, headers): (RequestFacts, HeaderMap),
        reply: RecordReply,
    ) -> Result<Reply, Error> {
        if read.is_classic {
            return Ok(Reply::new(headers, StatusCode::OK, media::JSON, reply.body));
        }
        if seen.condition && condition::is_not_modified(&headers, reply.tag)? {
            let mut answer = Reply::empty(headers, StatusCode::NOT_MODIFIED);
            self.describe(&reply, &mut answer.headers);
            return Ok(answer);
        }
        let mut answer = Reply::new(headers, StatusCode::OK, media::value(read.form), Bytes::new());
        self.describe(&reply, &mut answer.headers);
        if read.is_selection {
            answer.headers.insert(MATCHED.clone(), self.number(reply.matched.into()));
        }
        answer.body = reply.body;
        Ok(answer)
    }

    pub(crate) fn one<'a>(&self, operation: Operation, request: &Request<'a>) -> Result<One<'a>, Error> {
        if operation == Operation::ClassicGet { self.classic_one(request) } else { self.native_one(request) }
    }

    fn classic_one<'a>(&self, request: &Request<'a>) -> Result<One<'a>, Error> {
        let mut id = Id::Given(request.id()?);
        for (name, value) in url::pairs(request.query) {
            if !classic::is_passed_over(name, value)? {
                let mut digits = [0; 20];
                let length = self.draw(name, value, &mut digits)?;
                id = Id::Drawn(digits, length);
            }
        }
        let field = url::decode_text(request.part)?;
        Ok(One { type_name: self.type_name(request)?, id, form: Form::Json, field, selection: None })
    }

    fn native_one<'a>(&self, request: &Request<'a>) -> Result<One<'a>, Error> {
        let selection = if request.query.is_some() { selection(request)? } else { None };
        let offered = if selection.is_some() { media::JSON_FORMS } else { media::ANY_FORM };
        let form = if request.seen.accept { media::wanted(&request.headers, offered)? } else { Form::Json };
        let field = Cow::Borrowed("");
        Ok(One { type_name: self.type_name(request)?, id: Id::Given(request.id()?), form, field, selection })
    }

    /// Writes the id that `benchmark_only` asks for; says how long it is.
    pub(crate) fn draw(&self, name: &str, value: &str, text: &mut [u8]) -> Result<usize, Error> {
        if name != "benchmark_only" {
            return Err(url::unknown(name));
        }
        match url::number(name, value)? {
            0 => Err(refused("benchmark_only is the largest id to draw, from 1 on")),
            bound => Ok(crate::local::write_number(self.random_id(bound), text)),
        }
    }

    /// What a reply says of the record beside its body.
    pub(crate) fn describe(&self, reply: &RecordReply, headers: &mut HeaderMap) {
        if let Some(tag) = reply.tag {
            headers.insert(header::ETAG, self.tag(tag));
        }
        if let Some(schema) = reply.schema_id {
            headers.insert(SCHEMA_ID.clone(), self.schema_id(schema));
        }
        if let Some(expires_ms) = reply.expires_ms {
            headers.insert(EXPIRES.clone(), self.number(expires_ms));
        }
    }

    /// `GET /records/{type}`.
    pub(crate) async fn find<B: api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let asked = ListQuery::read(request.query)?;
        let query = asked.query(&request)?;
        let reply = self.ask(backend, who, &request, RecordOperation::Find(query)).await?;
        Ok(Reply::new(request.headers, StatusCode::OK, media::JSON, reply.body))
    }

    /// `POST /records/{type}/batch`.
    pub(crate) async fn get_many<B: api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let (ids, form) = batch(&request)?;
        let operation = RecordOperation::GetMany { ids: ids.iter().map(Vec::as_slice).collect(), form };
        let reply = self.ask(backend, who, &request, operation).await?;
        Ok(Reply::new(request.headers, StatusCode::OK, media::JSON, reply.body))
    }

    /// `GET /records/{type}/changes` as a page.
    pub(crate) async fn changes<B: api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let (cursor, limit) = page_of_changes(&request)?;
        let operation = RecordOperation::Changes { cursor: &cursor, limit };
        let reply = self.ask(backend, who, &request, operation).await?;
        Ok(Reply::new(request.headers, StatusCode::OK, media::JSON, reply.body))
    }

    /// Runs an operation about a type.
    async fn ask<B: api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: &Request<'_>,
        operation: RecordOperation<'_>,
    ) -> Result<RecordReply, Error> {
        let type_name = request.type_name()?;
        let request = RecordRequest { type_name: &type_name, id: None, operation, idempotency_key: None };
        backend.record(who, request).reply().await
    }
}

/// What `?path=…` selects.
fn selection<'a>(request: &Request<'a>) -> Result<Option<Box<Selection<'a>>>, Error> {
    let (mut path, mut parameters) = (None, Parameters::default());
    for (name, value) in url::pairs(request.query) {
        match name {
            "path" => url::once(&mut path, name, url::form_text(value)?)?,
            _ if parameters.take(name, value)? => {}
            _ => return Err(url::unknown(name)),
        }
    }
    let parameters = parameters.finish();
    let Some(path) = path else {
        if parameters.is_empty() {
            return Ok(None);
        }
        return Err(refused("p.… are the parameters of a path: send path=… too"));
    };
    check_path(&path, "path")?;
    Ok(Some(Box::new(Selection { path, parameters })))
}

/// Checks the length of a path or predicate before it goes anywhere.
pub(crate) fn check_path(path: &str, what: &str) -> Result<(), Error> {
    let limit = limits::PATH_BYTES;
    if path.len() > limit {
        let message = format!("the {what} is {} bytes long; at most {limit} are allowed", path.len());
        return Err(Error::new(ErrorCode::InvalidPath, message));
    }
    Ok(())
}

/// The form of records in a list.
fn list_form(request: &Request<'_>) -> Result<Form, Error> {
    if request.seen.accept { media::wanted(&request.headers, media::JSON_FORMS) } else { Ok(Form::Json) }
}

/// The cursor and the limit of a page of changes.
pub(crate) fn change_page(query: Option<&str>) -> Result<(Option<Cow<'_, str>>, Option<u64>), Error> {
    let (mut cursor, mut limit) = (None, None);
    for (name, value) in url::pairs(query) {
        match name {
            "cursor" => url::once(&mut cursor, name, url::decode_text(value)?)?,
            "limit" => url::once(&mut limit, name, url::number(name, value)?)?,
            _ => return Err(url::unknown(name)),
        }
    }
    Ok((cursor, limit))
}

/// Items of a page.
pub(crate) fn page_items(limit: Option<u64>) -> Result<u32, Error> {
    let (default, most) = (limits::PAGE_ITEMS, limits::MOST_PAGE_ITEMS);
    let items = usize::try_from(limit.unwrap_or(default as u64)).unwrap_or(usize::MAX);
    if !(1..=most).contains(&items) {
        return Err(refused(format!("limit must be a whole number from 1 to {most}, such as limit=100")));
    }
    Ok(u32::try_from(items).unwrap_or(u32::MAX))
}

/// The cursor and the number of a page of changes that is no stream.
pub(crate) fn page_of_changes<'a>(request: &Request<'a>) -> Result<(Cow<'a, str>, u32), Error> {
    let (cursor, limit) = change_page(request.query)?;
    list_form(request)?;
    Ok((cursor.unwrap_or_default(), page_items(limit)?))
}

/// The ids of a batch, and the form of its records.
pub(crate) fn batch(request: &Request<'_>) -> Result<(Vec<Vec<u8>>, Form), Error> {
    url::no_parameters(request.query)?;
    media::json_body(&request.headers)?;
    let ids = read_ids(&request.body)?;
    Ok((ids, list_form(request)?))
}

/// The query of `GET /records/{type}`.
#[derive(Default)]
pub(crate) struct ListQuery<'a> {
    predicate: Option<Cow<'a, str>>,
    parameters: String,
    order: Option<Cow<'a, str>>,
    prefix: Option<Cow<'a, [u8]>>,
    cursor: Option<Cow<'a, str>>,
    limit: Option<u64>,
    ids_only: Option<bool>,
    explain: Option<bool>,
}

impl<'a> ListQuery<'a> {
    pub(crate) fn query(&self, request: &Request<'_>) -> Result<RecordQuery<'_>, Error> {
        Ok(RecordQuery {
            predicate: self.predicate.as_deref().unwrap_or_default(),
            parameters: &self.parameters,
            order: self.order.as_deref().unwrap_or_default(),
            prefix: self.prefix.as_deref().unwrap_or_default(),
            cursor: self.cursor.as_deref().unwrap_or_default(),
            limit: page_items(self.limit)?,
            ids_only: self.ids_only.unwrap_or_default(),
            form: list_form(request)?,
            explain: self.explain.unwrap_or_default(),
        })
    }

    pub(crate) fn read(query: Option<&'a str>) -> Result<Self, Error> {
        let mut asked = Self::default();
        let mut parameters = Parameters::default();
        for (name, value) in url::pairs(query) {
            match name {
                "where" => url::once(&mut asked.predicate, name, url::form_text(value)?)?,
                "order" => url::once(&mut asked.order, name, url::form_text(value)?)?,
                "prefix" => url::once(&mut asked.prefix, name, url::decode(value)?)?,
                "cursor" => url::once(&mut asked.cursor, name, url::decode_text(value)?)?,
                "limit" => url::once(&mut asked.limit, name, url::number(name, value)?)?,
                "ids_only" => url::once(&mut asked.ids_only, name, url::flag(name, value)?)?,
                "explain" => url::once(&mut asked.explain, name, url::flag(name, value)?)?,
                _ if parameters.take(name, value)? => {}
                _ => return Err(url::unknown(name)),
            }
        }
        check_path(asked.predicate.as_deref().unwrap_or_default(), "predicate")?;
        check_path(asked.order.as_deref().unwrap_or_default(), "order")?;
        asked.parameters = parameters.finish();
        if asked.predicate.as_deref() == Some("") {
            return Err(refused("where is empty: leave it out, or say which records are meant"));
        }
        if asked.predicate.is_none() && !asked.parameters.is_empty() {
            return Err(refused("p.… are the parameters of a predicate: send where=… too"));
        }
        Ok(asked)
    }
}

/// Reads `{"ids":["a",{"base64":"…"}]}`.
fn read_ids(body: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Batch<'a> {
        #[serde(borrow)]
        ids: Vec<Id<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id<'a> {
        Text(#[serde(borrow)] Cow<'a, str>),
        Binary(Object<Binary>),
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Binary {
        base64: String,
    }
    let Object::<Batch<'_>>(batch) = crate::body::read(body, "{\"ids\":[…]}")?;
    let limit = limits::BATCH_RECORDS;
    if batch.ids.len() > limit {
        return Err(refused(format!("a batch asks for at most {limit} records")));
    }
    let decoded = batch.ids.into_iter().map(|id| match id {
        Id::Text(text) => Ok(text.into_owned().into_bytes()),
        Id::Binary(Object(Binary { base64 })) => {
            STANDARD.decode(base64).map_err(|_| refused("an id's base64 cannot be read"))
        }
    });
    let ids: Vec<Vec<u8>> = decoded.collect::<Result<_, _>>()?;
    if ids.iter().any(|id| id.is_empty() || id.len() > limits::RECORD_ID_BYTES) {
        return Err(refused(format!("an id has 1 to {} bytes", limits::RECORD_ID_BYTES)));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_one_object() {
        let mut parameters = Parameters::default();
        assert_eq!(parameters.take("p.a", "%22x%22"), Ok(true));
        assert_eq!(parameters.take("p.%22b", "[1,+2]"), Ok(true));
        assert_eq!(parameters.take("q", "1"), Ok(false));
        assert_eq!(parameters.finish(), r#"{"a":"x","\"b":[1, 2]}"#);
        assert_eq!(Parameters::default().finish(), "");
        let refused = Parameters::default().take("p.a", "James").expect_err("not JSON");
        assert!(refused.code == ErrorCode::InvalidInput && refused.message.contains("quotes"), "{refused}");
    }

    #[test]
    fn a_batch_is_a_list_of_ids() {
        let ids = read_ids(br#"{"ids":["a","\u00e4",{"base64":"/wA="}]}"#).expect("ids");
        assert_eq!(ids, [b"a".to_vec(), "ä".as_bytes().to_vec(), vec![255, 0]]);
        for bad in [&b""[..], b"[]", b"{}", br#"{"ids":[1]}"#, br#"{"ids":[""]}"#, br#"{"ids":[],"x":1}"#] {
            assert!(read_ids(bad).is_err(), "{:?}", bad.escape_ascii().to_string());
        }
        let many = serde_json::json!({ "ids": vec!["a"; limits::BATCH_RECORDS + 1] }).to_string();
        assert!(read_ids(many.as_bytes()).expect_err("too many").message.contains("1000"));
    }

    #[test]
    fn a_query_is_read_whole() {
        let asked = ListQuery::read(Some(".x=1")).err().expect("unknown");
        assert!(asked.message.contains(".x"));
        let query = "where=.age+%3E+$a&p.a=1&order=-.age&prefix=%ff&cursor=c&limit=5&ids_only&explain=false";
        let asked = ListQuery::read(Some(query)).expect("valid");
        assert_eq!(asked.predicate.as_deref(), Some(".age > $a"));
        assert_eq!((asked.parameters.as_str(), asked.order.as_deref()), (r#"{"a":1}"#, Some("-.age")));
        assert_eq!((asked.prefix.as_deref(), asked.limit), (Some(&b"\xff"[..]), Some(5)));
        assert_eq!((asked.ids_only, asked.explain), (Some(true), Some(false)));
        for bad in ["where=", "limit=5&limit=6", "ids_only=maybe", "where=%zz", "p.a=x", "p.a=1", "p.a=1&order=.a"] {
            assert!(ListQuery::read(Some(bad)).is_err(), "{bad}");
        }
        let long = format!("where={}", "x".repeat(limits::PATH_BYTES + 1));
        assert_eq!(ListQuery::read(Some(&long)).err().map(|error| error.code), Some(ErrorCode::InvalidPath));
        assert!(page_items(Some(0)).is_err() && page_items(Some(1001)).is_err() && page_items(None) == Ok(50));
    }
}
