//! Copies, made here: the source is read and written like a body that a client sends.

use bytes::Bytes;
use millrace_api::objects::{
    BodyRead, BodyWrite, BodyWritten, ObjectInfo, ObjectOperation, ObjectRead, ObjectReply, ObjectRequest, Objects,
    PutInput, UploadInput,
};

use super::put::Target;
use super::respond::{self, set, set_expires, set_version};
use super::{Front, Reply, RoutedRequest, translate};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::operation::conditions;
use crate::operation::copy::{self, Source};
use crate::operation::digests::Claims;
use crate::users::Users;
use crate::xml::uploads;

impl<B: Objects, U: Users> Front<B, U> {
    pub(crate) async fn copy(&self, asked: &RoutedRequest<'_>) -> Result<Reply<B>, S3Error> {
        let head = &asked.head;
        let source = copy::source(head)?;
        let range = copy::range(head)?;
        let mut target = self.write_target(asked)?;
        let replaces_metadata = copy::replaces(head, "x-amz-metadata-directive")?;
        let replaces_tags = copy::replaces(head, "x-amz-tagging-directive")?;
        let copied_from = source.input(head.header("x-amz-metadata-directive")?.unwrap_or_default());
        if let Target::Object(upload, _) = &target {
            refuse_idle(asked, &source, upload, replaces_metadata || replaces_tags)?;
        }
        let check = PutInput { copy: Some(copied_from.clone()), ..PutInput::default() };
        self.check_write(asked, 0, target.operation(check)).await?;
        let mut read = self.read_source(asked, &source).await?;
        let bytes = match (&target, range) {
            (Target::Part(..), Some(range)) if range.end > read.info.size_bytes => {
                let message =
                    format!("Range specified is not valid for source object of size: {}", read.info.size_bytes);
                return Err(S3Error::new(Code::InvalidRange, message));
            }
            (Target::Part(..), Some(range)) => range,
            _ => 0..read.info.size_bytes,
        };
        let length = bytes.end - bytes.start;
        if length > limits::PUT_BYTES {
            let message =
                "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120";
            return Err(S3Error::new(Code::InvalidRequest, message));
        }
        let kept = match &mut target {
            Target::Object(upload, _) => {
                take_from(upload, &read.info, replaces_metadata, replaces_tags);
                let asked_for = upload.checksum.take().map(|(algorithm, _)| algorithm);
                asked_for.or(read.info.checksum.as_ref().map(|checksum| checksum.algorithm))
            }
            Target::Part(..) => self.upload_algorithm(asked, &target).await?,
        };
        let needed = Claims::default().needed(kept);
        let owner = self.owner(asked, &target);
        let mut writer = self.backend.begin_body(&owner, Some(length), &needed).map_err(translate::error)?;
        read.body.seek(bytes);
        let failed = |error| translate::read_error(&source.bucket, &source.key, error);
        while let Some(bytes) = read.body.next().await.map_err(failed)? {
            writer.write(bytes).await.map_err(translate::error)?;
        }
        let written = writer.finish().await.map_err(translate::error)?;
        if written.body().length != length {
            return Err(Code::InternalError.into());
        }
        let put =
            PutInput { body: written.body().clone(), checksum: kept, copy: Some(copied_from), ..PutInput::default() };
        let is_part = matches!(target, Target::Part(..));
        let reply = self.make_visible(asked, target.operation(put), written).await?;
        respond_copied::<B>(&reply, &read.info, is_part)
    }

    async fn read_source(
        &self,
        asked: &RoutedRequest<'_>,
        source: &Source,
    ) -> Result<ObjectRead<B::BodyRead>, S3Error> {
        let mut requester = asked.requester()?;
        requester.expected_bucket_owner = asked.head.header("x-amz-source-expected-bucket-owner")?.unwrap_or_default();
        let request = ObjectRequest {
            requester,
            bucket: &source.bucket,
            key: &source.key,
            operation: ObjectOperation::GetSource(conditions::source(&asked.head, source.version.clone())?),
            body: Bytes::new(),
        };
        let failed = |error| translate::read_error(&source.bucket, &source.key, error);
        let read = self.backend.read_object(request).reply().await.map_err(failed);
        read.map_err(|error| match error.code {
            // A copy has no way to say that nothing changed.
            Code::NotModified => Code::PreconditionFailed.into(),
            _ => error,
        })
    }
}

/// Refuses a copy that would change nothing, as S3 does: it is a mistake more often than not.
fn refuse_idle(
    asked: &RoutedRequest<'_>,
    source: &Source,
    upload: &UploadInput,
    replaces: bool,
) -> Result<(), S3Error> {
    let is_same = source.bucket == asked.target.bucket && source.key == asked.target.key && source.version.is_none();
    let changes = replaces
        || !upload.storage_class.is_empty()
        || upload.checksum.is_some()
        || asked.head.headers.contains_key("x-amz-website-redirect-location");
    if is_same && !changes {
        let message = "This copy request is illegal because it is trying to copy an object to itself without changing the \
                       object's metadata, storage class, website redirect location or encryption attributes.";
        return Err(S3Error::new(Code::InvalidRequest, message));
    }
    Ok(())
}

/// What of the source goes over to the copy.
fn take_from(upload: &mut UploadInput, info: &ObjectInfo, replaces_metadata: bool, replaces_tags: bool) {
    if !replaces_metadata {
        let redirect = |name: &str| name == "x-amz-website-redirect-location";
        upload.headers.retain(|(name, _)| redirect(name));
        upload.headers.extend(info.headers.iter().filter(|(name, _)| !redirect(name)).cloned());
        upload.metadata.clone_from(&info.metadata);
    }
    if !replaces_tags {
        upload.tags.clone_from(&info.tags);
    }
}

fn respond_copied<B: Objects>(reply: &ObjectReply, source: &ObjectInfo, is_part: bool) -> Result<Reply<B>, S3Error> {
    let ObjectReply::Written { etag, version, modified_ms, checksum, expires, .. } = reply else {
        return Err(Code::InternalError.into());
    };
    let root = if is_part { "CopyPartResult" } else { "CopyObjectResult" };
    let mut response = respond::document(uploads::copied(root, etag, *modified_ms, checksum.as_ref()));
    let headers = response.headers_mut();
    if let Some(version) = &source.version {
        set(headers, "x-amz-copy-source-version-id", version);
    }
    set_version(headers, version.as_deref());
    set_expires(headers, expires.as_ref());
    Ok(response)
}
