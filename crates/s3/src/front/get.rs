//! Reads of objects: content, parts of it, metadata.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use millrace_api::objects::{BodyRead, ObjectInfo, ObjectReply, ObjectRequest, Objects};

use super::respond::{self, set, set_checksum, set_info};
use super::{Front, Reply, ReplyBody, RoutedRequest, is_head, translate};
use crate::algorithm::kind_name;
use crate::error::{Code, S3Error};
use crate::operation::input::OVERRIDES;
use crate::operation::range::{Wanted, wanted};
use crate::operation::{Head, parse};
use crate::times;
use crate::users::Users;

impl<B: Objects, U: Users> Front<B, U> {
    pub(crate) async fn get(&self, asked: &RoutedRequest<'_>, method: &Method) -> Result<Reply<B>, S3Error> {
        let head = &asked.head;
        let operation = parse(asked.action, head, &[], &self.users)?;
        if head.query.has("partNumber") && head.headers.contains_key("range") {
            let message = "Cannot specify both Range header and partNumber query parameter";
            return Err(S3Error::new(Code::InvalidRequest, message));
        }
        let (bucket, key) = (asked.target.bucket.as_str(), asked.target.key.as_str());
        let requester = asked.requester()?;
        if is_head(method) {
            let ObjectReply::Object { info, .. } = self.ask(requester, bucket, key, operation).await? else {
                return Err(Code::InternalError.into());
            };
            let (bytes, is_partial) = chosen(head, &info)?;
            let mut reply = respond::empty(StatusCode::OK);
            describe(&mut reply, head, &info, &bytes, is_partial);
            // hyper sends the length that is said, as the reply to HEAD has no body.
            set(reply.headers_mut(), "content-length", &(bytes.end - bytes.start).to_string());
            return Ok(reply);
        }
        let request = ObjectRequest { requester, bucket, key, operation, body: Bytes::new() };
        let failed = |error| translate::read_error(bucket, key, error);
        let mut read = self.backend.read_object(request).reply().await.map_err(failed)?;
        let (bytes, is_partial) = chosen(head, &read.info)?;
        let length = bytes.end - bytes.start;
        if is_partial {
            read.body.seek(bytes.clone());
        }
        let body = match read.body.at_hand() {
            Some(content) => ReplyBody::Whole(content),
            None if length == 0 => ReplyBody::empty(),
            None => ReplyBody::reading((bucket, key), read.body, length).await.map_err(failed)?,
        };
        let mut reply = Response::new(body);
        describe(&mut reply, head, &read.info, &bytes, is_partial);
        Ok(reply)
    }
}

/// Which bytes are wanted, and whether only some were asked for.
fn chosen(head: &Head<'_>, info: &ObjectInfo) -> Result<(Range<u64>, bool), S3Error> {
    if let Some(part) = &info.part {
        return Ok((part.offset..part.offset + part.size_bytes, true));
    }
    let text = head.header("range")?;
    let text = if is_unchanged(head.header("if-range")?, info) { text } else { None };
    match wanted(text, info.size_bytes) {
        Wanted::Whole => Ok((0..info.size_bytes, false)),
        Wanted::Part(range) => Ok((range, true)),
        Wanted::Outside => Err(S3Error::new(Code::InvalidRange, "The requested range is not satisfiable")
            .with("RangeRequested", text.unwrap_or_default())
            .with("ActualObjectSize", info.size_bytes.to_string())),
    }
}

/// Whether `If-Range` allows a range: its ETag or date is the object's. RFC 9110, section 13.1.5: a weak ETag and a date
/// that cannot be read never are.
fn is_unchanged(condition: Option<&str>, info: &ObjectInfo) -> bool {
    let Some(condition) = condition.map(str::trim) else { return true };
    match condition.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')) {
        Some(etag) => etag == info.etag,
        None => times::parse_http_date(condition).is_some_and(|time_ms| time_ms / 1000 == info.modified_ms / 1000),
    }
}

fn describe<R>(
    reply: &mut Response<ReplyBody<R>>,
    head: &Head<'_>,
    info: &ObjectInfo,
    bytes: &Range<u64>,
    is_partial: bool,
) {
    let headers = reply.headers_mut();
    set_info(headers, info);
    override_headers(headers, head);
    if head.query.has("partNumber")
        && let Some(count) = info.part_count
    {
        set(headers, "x-amz-mp-parts-count", &count.to_string());
    }
    let wants_checksum = head.header("x-amz-checksum-mode").ok().flatten();
    if wants_checksum.is_some_and(|mode| mode.eq_ignore_ascii_case("enabled")) {
        match &info.part {
            Some(part) => {
                set_checksum(headers, part.checksum.as_ref(), None);
                // The type says how the parts make the object's checksum, also beside the value of one part.
                if let (Some(_), Some(whole)) = (&part.checksum, &info.checksum) {
                    set(headers, "x-amz-checksum-type", kind_name(whole.kind));
                }
            }
            // The checksum of the whole says nothing about a part, and clients would compare it.
            None if is_partial && *bytes != (0..info.size_bytes) => {}
            None => set_checksum(headers, info.checksum.as_ref(), info.part_count),
        }
    }
    if is_partial {
        if bytes.start < bytes.end {
            set(headers, "content-range", &format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, info.size_bytes));
        }
        *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
}

fn override_headers(headers: &mut HeaderMap, head: &Head<'_>) {
    for (parameter, header) in OVERRIDES {
        if let Some(value) = head.query.get(parameter) {
            set(headers, header, value);
        }
    }
}
