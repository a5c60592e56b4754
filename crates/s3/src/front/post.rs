//! Forms of browsers: an object from `multipart/form-data`.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use millrace_api::objects::{BodyWrite, BodyWritten, ObjectOperation, ObjectReply, Objects, PutInput, WriteConditions};

use super::arriving::Arriving;
use super::authenticate::Identity;
use super::put::Target as Write;
use super::respond::{self, set, set_etag, set_version};
use super::{Front, Peer, Reply, RoutedRequest, now_s, translate};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::operation::digests::Claims;
use crate::operation::{Head, input};
use crate::post_form::{self, Event, Form, FormReader, Policy, Success};
use crate::route::{Action, Query, Target, check_key};
use crate::signature::Payload;
use crate::users::Users;
use crate::xml::{tagging, uploads};

/// A form that was read up to its file.
struct Begun {
    reader: FormReader,
    identity: Identity,
    policy: Option<Policy>,
}

impl<B: Objects, U: Users> Front<B, U> {
    pub(crate) async fn post(
        &self,
        parts: &Parts,
        bucket: &Target,
        host: &str,
        peer: Peer,
        body: &mut Arriving,
    ) -> Result<Reply<B>, S3Error> {
        let begun = self.read_fields(parts, &bucket.bucket, body).await?;
        let form = begun.reader.form();
        let key = form.key()?;
        check_key(key)?;
        let target = Target { key: key.to_owned(), ..bucket.clone() };
        let headers = headers_of(form)?;
        let query = Query::default();
        let head = Head { headers: &headers, query: &query, region: &self.options.region };
        let mut upload = input::upload(&head, &self.users)?;
        if let Some(document) = form.get("tagging") {
            upload.tags = tagging::read_tags(document.as_bytes(), limits::OBJECT_TAGS)?;
        }
        let claims = Claims::read(&head)?;
        let write = Write::Object(Box::new(upload), WriteConditions::default());
        let form = form.clone();
        let Begun { reader, identity, policy } = begun;
        let asked = RoutedRequest { action: Action::PostForm, target: &target, head, identity: &identity, peer, host };
        let check =
            ObjectOperation::CheckWrite { size_bytes: None, write: Box::new(write.operation(PutInput::default())) };
        self.ask(asked.requester()?, &target.bucket, &target.key, check).await?;
        let written = self.read_file(&asked, &write, &claims, policy.as_ref(), reader, body).await?;
        claims.check(&written.body().digests, None)?;
        let put = PutInput { body: written.body().clone(), checksum: claims.kept(), ..PutInput::default() };
        let reply = self.make_visible(&asked, write.operation(put), written).await?;
        self.respond_posted(&asked, &form, &reply)
    }

    /// Reads the fields, and finds out who signed them.
    async fn read_fields(&self, parts: &Parts, bucket: &str, body: &mut Arriving) -> Result<Begun, S3Error> {
        let kind = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut reader = FormReader::new(&post_form::boundary(kind)?);
        loop {
            match reader.next_event()? {
                Event::FileBegins => break,
                Event::NeedsMore => match body.next().await? {
                    Some(bytes) => reader.push(&bytes),
                    None => return Err(reader.finish().err().unwrap_or_else(|| Code::MalformedPostRequest.into())),
                },
                Event::File(_) | Event::End => return Err(Code::MalformedPostRequest.into()),
            }
        }
        let cache = &mut *self.signing_keys.borrow_mut();
        let (rules, find) = (self.rules(), self.find_key());
        let signed = post_form::verify(reader.form(), bucket, now_s(), &rules, &find, cache)?;
        let is_second = reader.form().get("x-amz-algorithm").is_none();
        Ok(match signed {
            None => Begun { reader, identity: Identity::anonymous(Payload::Unsigned), policy: None },
            Some(signed) => Begun {
                reader,
                identity: Identity {
                    id: Some(signed.identity.id),
                    name: signed.identity.name,
                    auth_kind: "POST",
                    signature_version: if is_second { "AWS" } else { "AWS4-HMAC-SHA256" },
                    payload: Payload::Unsigned,
                    seed: None,
                },
                policy: Some(signed.policy),
            },
        })
    }

    async fn read_file(
        &self,
        asked: &RoutedRequest<'_>,
        write: &Write,
        claims: &Claims,
        policy: Option<&Policy>,
        mut reader: FormReader,
        body: &mut Arriving,
    ) -> Result<<B::BodyWrite as BodyWrite>::Written, S3Error> {
        let largest = policy.map_or(u64::MAX, Policy::largest_bytes).min(limits::PUT_BYTES);
        let owner = self.owner(asked, write);
        let begun = self.backend.begin_body(&owner, None, &claims.needed(claims.kept()));
        let mut writer = begun.map_err(translate::error)?;
        let mut size_bytes = 0;
        loop {
            match reader.next_event()? {
                Event::File(bytes) => {
                    size_bytes += bytes.len() as u64;
                    if size_bytes > largest {
                        let message = "Your proposed upload exceeds the maximum allowed size";
                        return Err(S3Error::new(Code::EntityTooLarge, message));
                    }
                    writer.write(Bytes::from(bytes)).await.map_err(translate::error)?;
                }
                Event::NeedsMore => match body.next().await? {
                    Some(bytes) => reader.push(&bytes),
                    None => return Err(reader.finish().err().unwrap_or_else(|| Code::IncompleteBody.into())),
                },
                Event::End => break,
                Event::FileBegins => return Err(Code::MalformedPostRequest.into()),
            }
        }
        // What stands behind the file does not count, and is read so that the connection can be used again.
        while body.next().await?.is_some() {}
        if let Some(policy) = policy {
            policy.check_size(size_bytes)?;
        }
        writer.finish().await.map_err(translate::error)
    }

    fn respond_posted(&self, asked: &RoutedRequest<'_>, form: &Form, reply: &ObjectReply) -> Result<Reply<B>, S3Error> {
        let ObjectReply::Written { etag, version, .. } = reply else { return Err(Code::InternalError.into()) };
        let (bucket, key) = (asked.target.bucket.as_str(), asked.target.key.as_str());
        let location = self.location(asked);
        let mut reply = match form.success(bucket, key, &format!("\"{etag}\"")) {
            Success::Redirect(address) => {
                let mut reply = respond::empty(StatusCode::SEE_OTHER);
                set(reply.headers_mut(), "location", &address);
                reply
            }
            Success::Status(201) => {
                let mut reply = respond::document(uploads::posted(&location, bucket, key, etag));
                *reply.status_mut() = StatusCode::CREATED;
                set(reply.headers_mut(), "location", &location);
                reply
            }
            Success::Status(status) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NO_CONTENT);
                let mut reply = respond::empty(status);
                set(reply.headers_mut(), "location", &location);
                reply
            }
        };
        set_etag(reply.headers_mut(), etag);
        set_version(reply.headers_mut(), version.as_deref());
        Ok(reply)
    }
}

/// Fields that stand for headers. The others have a meaning of their own.
fn headers_of(form: &Form) -> Result<HeaderMap, S3Error> {
    let mut headers = HeaderMap::new();
    let kind = form.content_type().map(|kind| ("content-type", kind));
    for (name, value) in form.iter().chain(kind) {
        let name = match name {
            "acl" => "x-amz-acl",
            "content-md5" => name,
            _ if input::KEPT.contains(&name) => name,
            _ if name.starts_with("x-amz-server-side-encryption") => return Err(Code::NotImplemented.into()),
            _ if ["x-amz-meta-", "x-amz-object-lock-", "x-amz-checksum-", "x-amz-grant-", "x-amz-storage-class"]
                .iter()
                .any(|start| name.starts_with(start)) =>
            {
                name
            }
            _ => continue,
        };
        let invalid = || S3Error::new(Code::InvalidArgument, format!("The field {name} is not valid."));
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
    }
    Ok(headers)
}
