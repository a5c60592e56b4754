//! The URLs of the server before this one, kept working.
//!
//! They answer as that server did where it was right: `OK` or JSON. What it answered with 200 and
//! nothing (a failed read) or with `OK` (an update that matched nothing) is 404 here.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use millrace_api as api;
use millrace_api::{
    Deployments, Form, PathOperation, PathOperationKind, Principal, RecordChange, RecordOperation, RecordRequest,
};
use millrace_base::{Error, ErrorCode};
use millrace_registry::{TriggerSettings, When};

use crate::Operation;
use crate::local::Records;
use crate::media;
use crate::read::check_path;
use crate::request::{MATCHED, Reply, Request};
use crate::url::{self, refused};

/// A path, and the JSON behind its line break.
fn split_body(body: &str) -> Result<(&str, &str), Error> {
    let at = body.find(['\r', '\n']);
    let at = at.ok_or_else(|| refused("the body is a path, a line break and JSON"))?;
    let rest = &body[at..];
    let rest = rest.strip_prefix("\r\n").unwrap_or(&rest[1..]);
    Ok((&body[..at], rest))
}

/// A body that is a path alone.
fn path_body(body: &str) -> &str {
    body.trim_end_matches(['\r', '\n'])
}

/// Whether a parameter is the one that meant something once and is taken without a meaning: `timeout` said how
/// long an idle record stayed in the old server's memory. Here records are on the disk, and what is in memory is
/// the server's business.
pub(crate) fn is_passed_over(name: &str, value: &str) -> Result<bool, Error> {
    if name != "timeout" {
        return Ok(false);
    }
    url::number(name, value).map(|_| true)
}

/// Checks that a query has nothing but what is passed over.
fn no_parameters(query: Option<&str>) -> Result<(), Error> {
    url::pairs(query).try_for_each(|(name, value)| match is_passed_over(name, value)? {
        true => Ok(()),
        false => Err(url::unknown(name)),
    })
}

/// What a classic operation changes about one record.
pub(crate) fn record_change<'a>(operation: Operation, request: &'a Request<'_>) -> Result<RecordChange<'a>, Error> {
    let kind = match operation {
        Operation::ClassicPut => return put(request),
        Operation::ClassicUpdate => PathOperationKind::Set,
        Operation::ClassicInsert => PathOperationKind::Insert,
        Operation::ClassicInsertAll => PathOperationKind::InsertAll,
        Operation::ClassicDelete => PathOperationKind::Delete,
        Operation::ClassicClear => PathOperationKind::Clear,
        _ => return Err(not_classic()),
    };
    no_parameters(request.query)?;
    let body = request.text()?;
    let (path, value) = match kind {
        PathOperationKind::Delete | PathOperationKind::Clear => (path_body(body), None),
        _ => split_body(body).map(|(path, value)| (path, Some(value)))?,
    };
    check_path(path, "path")?;
    let operations = vec![PathOperation { kind, path: path.into(), value }];
    Ok(RecordChange::Patch { operations, parameters: "" })
}

fn put<'a>(request: &'a Request<'_>) -> Result<RecordChange<'a>, Error> {
    let (form, value) = (Form::Json, &request.body[..]);
    let field = url::decode_text(request.part)?;
    Ok(if field.is_empty() { RecordChange::Put { form, value } } else { RecordChange::PutField { field, form, value } })
}

/// What a classic selection asks of one record.
pub(crate) fn selection<'a>(request: &'a Request<'_>) -> Result<RecordOperation<'a>, Error> {
    no_parameters(request.query)?;
    let path = path_body(request.text()?);
    check_path(path, "path")?;
    Ok(RecordOperation::Select { path, parameters: "", form: Form::Json })
}

impl Records {
    /// The id of a record that is put: it may be drawn.
    pub(crate) fn classic_id<'a>(&self, request: &Request<'a>) -> Result<Cow<'a, [u8]>, Error> {
        let mut id = request.id()?;
        for (name, value) in url::pairs(request.query) {
            if !is_passed_over(name, value)? {
                let mut text = [0; 20];
                let length = self.draw(name, value, &mut text)?;
                id = Cow::Owned(text[..length].to_vec());
            }
        }
        Ok(id)
    }

    /// Answers the classic operations that are neither [`Operation::is_read`] nor [`Operation::is_write`].
    pub(crate) async fn classic<B: Deployments + api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        operation: Operation,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        match operation {
            Operation::ClassicSelect => self.classic_select(backend, who, request).await,
            Operation::ClassicPutSchema => self.classic_put_schema(backend, who, request).await,
            Operation::ClassicDeleteSchema => self.delete_type(backend, who, request, true).await,
            Operation::ClassicPutScript => self.classic_put_script(backend, who, request).await,
            Operation::ClassicDeleteScript => self.classic_delete_script(backend, who, request).await,
            _ => Err(not_classic()),
        }
    }

    async fn classic_select<B: Deployments + api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let operation = selection(&request)?;
        let (type_name, id) = (request.type_name()?, request.id()?);
        let reply = backend
            .record(who, RecordRequest { type_name: &type_name, id: Some(&id), operation, idempotency_key: None })
            .reply()
            .await?;
        Ok(Reply::new(request.headers, StatusCode::OK, media::JSON, reply.body))
    }

    async fn classic_put_schema<B: Deployments>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        let type_name = request.type_name()?;
        let mut full_name = None;
        for (name, value) in url::pairs(request.query) {
            match name {
                "fullname" => url::once(&mut full_name, name, url::decode_text(value)?)?,
                _ if is_passed_over(name, value)? => {}
                _ => return Err(url::unknown(name)),
            }
        }
        let text = request.text()?;
        self.change(backend, who, |registry| {
            registry.put_classic_schema(&type_name, text, full_name.as_deref()).map(drop)
        })
        .await?;
        Ok(Reply::ok(request.headers))
    }

    async fn classic_put_script<B: Deployments>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        no_parameters(request.query)?;
        let type_name = request.type_name()?;
        let (field, name) = script_names(&request)?;
        let path = format!(".{field}");
        let source = request.text()?;
        self.change(backend, who, |registry| {
            let trigger = TriggerSettings {
                name: name.to_string(),
                path: path.clone(),
                when: When::After,
                source: source.to_owned(),
            };
            registry.put_trigger(&type_name, trigger)
        })
        .await?;
        Ok(Reply::ok(request.headers))
    }

    async fn classic_delete_script<B: Deployments>(
        &self,
        backend: &B,
        who: &Principal,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        no_parameters(request.query)?;
        let type_name = request.type_name()?;
        let (_, name) = script_names(&request)?;
        self.change(backend, who, |registry| registry.delete_trigger(&type_name, &name)).await?;
        Ok(Reply::ok(request.headers))
    }
}

/// The field and the name of a script.
fn script_names<'a>(request: &Request<'a>) -> Result<(Cow<'a, str>, Cow<'a, str>), Error> {
    Ok((url::decode_text(request.item)?, url::decode_text(request.part)?))
}

fn not_classic() -> Error {
    Error::new(ErrorCode::Internal, "this operation is none of the classic ones")
}

/// Adds to an error's headers what tells that a path matched nothing.
pub fn error_headers(error: &Error, headers: &mut HeaderMap) {
    if error.code == ErrorCode::NoMatch {
        headers.insert(MATCHED.clone(), http::HeaderValue::from_static("0"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_at_its_first_line_break() {
        for (body, path, value) in [
            (".\n{\"a\":1}", ".", "{\"a\":1}"),
            (".a\r\n1", ".a", "1"),
            (".a\r1", ".a", "1"),
            (".a\n\n1", ".a", "\n1"),
            ("\n1", "", "1"),
            (".a\r\n", ".a", ""),
        ] {
            assert_eq!(split_body(body), Ok((path, value)), "{body:?}");
        }
        assert!(split_body(".a").is_err());
        assert_eq!(path_body(".a\r\n"), ".a");
    }
}
