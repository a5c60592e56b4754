//! Writes of content: objects and parts.

use http::StatusCode;
use millrace_api::objects::{
    BodyOwner, BodyWrite, BodyWritten, ChecksumAlgorithm, ChecksumKind, ObjectOperation, ObjectReply, ObjectRequest,
    Objects, PartInput, PutInput, UploadInput, WriteConditions,
};

use super::arriving::Arriving;
use super::respond::{self, set_checksum, set_etag, set_expires, set_version};
use super::{Front, Reply, RoutedRequest, system, translate};
use crate::algorithm::names;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::operation::digests::Claims;
use crate::operation::{conditions, copy, input};
use crate::route::Action;
use crate::signature::Payload;
use crate::users::Users;

/// A write whose content is still to come.
pub(crate) enum Target {
    /// A version of an object.
    Object(Box<UploadInput>, WriteConditions),
    /// A part of an upload.
    Part(String, u16),
}

impl Target {
    /// What the store is asked for, beside the content.
    pub(crate) fn operation(&self, put: PutInput) -> ObjectOperation {
        match self {
            Target::Object(input, conditions) => ObjectOperation::Put(Box::new(PutInput {
                input: (**input).clone(),
                conditions: conditions.clone(),
                ..put
            })),
            Target::Part(upload, number) => ObjectOperation::PutPart(Box::new(PartInput {
                upload: upload.clone(),
                number: *number,
                body: put.body,
                copy: put.copy,
            })),
        }
    }

    fn part(&self) -> Option<(&str, u16)> {
        match self {
            Target::Object(..) => None,
            Target::Part(upload, number) => Some((upload, *number)),
        }
    }
}

impl<B: Objects, U: Users> Front<B, U> {
    /// What a request writes.
    pub(crate) fn write_target(&self, asked: &RoutedRequest<'_>) -> Result<Target, S3Error> {
        let head = &asked.head;
        if matches!(asked.action, Action::PutObject | Action::UploadPart) && copy::has_conditions(head) {
            let message = "You can only specify a copy source header for copy requests.";
            return Err(S3Error::new(Code::InvalidArgument, message));
        }
        Ok(match asked.action {
            Action::UploadPart | Action::UploadPartCopy => {
                let number = head.part_number()?.ok_or(Code::InvalidArgument)?;
                Target::Part(head.upload(), number)
            }
            _ => Target::Object(Box::new(input::upload(head, &self.users)?), conditions::write(head)?),
        })
    }

    pub(crate) async fn put(&self, asked: &RoutedRequest<'_>, body: &mut Arriving) -> Result<Reply<B>, S3Error> {
        let mut claims = Claims::read(&asked.head)?;
        if self.options.is_null_store {
            claims = Claims::default();
        }
        if let Payload::Sha256(sha256) = asked.identity.payload {
            claims.sha256 = Some(sha256);
        }
        let target = self.write_target(asked)?;
        let length = body.length();
        if length.is_none() && !body.is_framed() {
            let message = "You must provide the Content-Length HTTP header.";
            return Err(S3Error::new(Code::MissingContentLength, message));
        }
        if let Some(length) = length {
            check_length(length)?;
        }
        let is_small = length.is_some_and(|length| length <= limits::SMALL_BODY_BYTES);
        // A client that waits learns of a refusal before it sends anything.
        if !is_small || body.waits_for_continue() {
            self.check_write(asked, length.unwrap_or_default(), target.operation(PutInput::default())).await?;
        }
        let kept = match claims.kept() {
            Some(kept) => Some(kept),
            None => self.algorithm_of_part(asked, &target).await?,
        };
        let owner = self.owner(asked, &target);
        let begun = self.backend.begin_body(&owner, length, &claims.needed(kept));
        let mut writer = begun.map_err(translate::error)?;
        let mut received_bytes = 0;
        while let Some(bytes) = body.next().await? {
            received_bytes += bytes.len() as u64;
            check_length(received_bytes)?;
            writer.write(bytes).await.map_err(translate::error)?;
        }
        let written = writer.finish().await.map_err(translate::error)?;
        if length.is_some_and(|length| written.body().length != length) {
            return Err(Code::IncompleteBody.into());
        }
        claims.check(&written.body().digests, body.trailer())?;
        let put = PutInput { body: written.body().clone(), checksum: kept, ..PutInput::default() };
        let reply = self.make_visible(asked, target.operation(put), written).await?;
        respond_written::<B>(&reply)
    }

    pub(crate) fn owner<'a>(&self, asked: &RoutedRequest<'a>, target: &'a Target) -> BodyOwner<'a> {
        BodyOwner { bucket: &asked.target.bucket, key: &asked.target.key, part: target.part() }
    }

    /// The algorithm of a part that came without a checksum, if it is a part.
    ///
    /// A composite checksum is made of those that the client gave: one that the server computes would prove nothing.
    async fn algorithm_of_part(
        &self,
        asked: &RoutedRequest<'_>,
        target: &Target,
    ) -> Result<Option<ChecksumAlgorithm>, S3Error> {
        let Some((upload, _)) = target.part() else { return Ok(None) };
        let checksum = self.upload_checksum(asked, upload).await?;
        if let Some((algorithm, ChecksumKind::Composite)) = checksum
            && !self.options.is_null_store
        {
            // Only who may write learns of the upload.
            self.check_write(asked, 0, target.operation(PutInput::default())).await?;
            let message = format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: null",
                names(algorithm).name.to_ascii_lowercase()
            );
            return Err(S3Error::new(Code::InvalidRequest, message));
        }
        Ok(checksum.map(|(algorithm, _)| algorithm))
    }

    /// The algorithm that the parts of an upload have, if it is one.
    pub(crate) async fn upload_algorithm(
        &self,
        asked: &RoutedRequest<'_>,
        target: &Target,
    ) -> Result<Option<ChecksumAlgorithm>, S3Error> {
        let Some((upload, _)) = target.part() else { return Ok(None) };
        Ok(self.upload_checksum(asked, upload).await?.map(|(algorithm, _)| algorithm))
    }

    /// The checksum that an upload was begun with, if it is one that goes on.
    pub(crate) async fn upload_checksum(
        &self,
        asked: &RoutedRequest<'_>,
        upload: &str,
    ) -> Result<Option<(ChecksumAlgorithm, ChecksumKind)>, S3Error> {
        let operation = ObjectOperation::ListParts { upload: upload.to_owned(), after: 0, limit: 0 };
        let (bucket, key) = (&asked.target.bucket, &asked.target.key);
        match self.ask(system(), bucket, key, operation).await {
            Ok(ObjectReply::Parts(page)) => Ok(page.upload.and_then(|upload| upload.checksum)),
            // Whether the requester may know that there is no such upload, the write itself finds out.
            _ => Ok(None),
        }
    }

    /// The operation that makes a body visible.
    pub(crate) async fn make_visible(
        &self,
        asked: &RoutedRequest<'_>,
        operation: ObjectOperation,
        written: <B::BodyWrite as BodyWrite>::Written,
    ) -> Result<ObjectReply, S3Error> {
        let request = ObjectRequest {
            requester: asked.requester()?,
            bucket: &asked.target.bucket,
            key: &asked.target.key,
            operation,
            body: written.inline(),
        };
        self.backend.object(request, Some(written)).reply().await.map_err(translate::error)
    }
}

fn check_length(length: u64) -> Result<(), S3Error> {
    if length <= limits::PUT_BYTES {
        return Ok(());
    }
    Err(S3Error::new(Code::EntityTooLarge, "Your proposed upload exceeds the maximum allowed size")
        .with("ProposedSize", length.to_string())
        .with("MaxSizeAllowed", limits::PUT_BYTES.to_string()))
}

fn respond_written<B: Objects>(reply: &ObjectReply) -> Result<Reply<B>, S3Error> {
    let ObjectReply::Written { etag, version, checksum, expires, .. } = reply else {
        return Err(Code::InternalError.into());
    };
    let mut response = respond::empty(StatusCode::OK);
    let headers = response.headers_mut();
    set_etag(headers, etag);
    set_version(headers, version.as_deref());
    set_checksum(headers, checksum.as_ref(), None);
    set_expires(headers, expires.as_ref());
    Ok(response)
}
