//! An operation as policies look at it: the values of the keys of conditions.
//!
//! A key that the request does not have has no value, which is another thing than an empty one. Server-side encryption
//! is refused before any policy is asked, so its keys never have values.

use std::borrow::Cow;

use millrace_api::objects::{
    AccessInput, CannedAccess, CopyInput, Grant, Grantee, Group, ListRequest, ObjectOperation, ObjectRequest,
    Permission, Retention, RetentionMode, Tag, UploadInput,
};

use crate::access::policy::{ConditionKey, Request};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A request with what is known of the object that it is about.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The request.
    pub request: &'a ObjectRequest<'a>,
    /// The operation, or the one of many, or the write that is checked.
    pub operation: &'a ObjectOperation,
    /// The tags of the object that is there.
    pub existing_tags: &'a [Tag],
    /// Unix milliseconds.
    pub now_ms: u64,
}

type Values<'v> = Option<Vec<Cow<'v, str>>>;

fn one(text: &str) -> Values<'_> {
    Some(vec![Cow::Borrowed(text)])
}

fn some(text: &str) -> Values<'_> {
    if text.is_empty() { None } else { one(text) }
}

fn made<'v>(text: String) -> Values<'v> {
    Some(vec![Cow::Owned(text)])
}

fn of_tag<'v>(tags: &'v [Tag], key: &str) -> Values<'v> {
    tags.iter().find(|tag| tag.key == key).and_then(|tag| one(&tag.value))
}

impl Request for Context<'_> {
    fn principal_id(&self) -> Option<&str> {
        self.request.requester.id
    }

    fn principal_name(&self) -> &str {
        self.request.requester.name
    }

    fn values(&self, key: &ConditionKey) -> Option<Vec<Cow<'_, str>>> {
        match (key.name.split_once(':')?, key.argument.as_str()) {
            (("aws", name), "") => self.global(name),
            (("s3", "existingobjecttag"), tag) => of_tag(self.existing_tags, tag),
            (("s3", "requestobjecttag"), tag) => of_tag(self.request_tags()?, tag),
            (("s3", name), "") => self.of_request(name).or_else(|| self.of_upload(name)),
            _ => None,
        }
    }
}

impl Context<'_> {
    fn global(&self, name: &str) -> Values<'_> {
        let requester = &self.request.requester;
        match name {
            "sourceip" => made(requester.address?.to_canonical().to_string()),
            "securetransport" => one(if requester.is_encrypted { "true" } else { "false" }),
            "referer" => some(requester.referer),
            "useragent" => some(requester.user_agent),
            "username" => requester.id.and(some(requester.name)),
            "userid" | "principalaccount" => one(requester.id?),
            "principaltype" => one(if requester.id.is_some() { "User" } else { "Anonymous" }),
            "principalarn" => made(format!("arn:aws:iam::{}:user/{}", requester.id?, requester.name)),
            "currenttime" | "epochtime" => made((self.now_ms / 1000).to_string()),
            _ => None,
        }
    }

    /// What requests have that are not about a new version.
    fn of_request(&self, name: &str) -> Values<'_> {
        let requester = &self.request.requester;
        match name {
            "authtype" => some(requester.auth_kind),
            "signatureversion" => some(requester.signature_version),
            "prefix" => one(&self.list()?.prefix),
            "delimiter" => some(&self.list()?.delimiter),
            "max-keys" => made(self.list()?.limit.to_string()),
            "versionid" => one(self.version()?),
            "x-amz-acl" => match self.access()? {
                AccessInput::Canned(canned) => one(name_of(*canned)),
                _ => None,
            },
            "x-amz-grant-full-control" => self.granted(Permission::FullControl),
            "x-amz-grant-read" => self.granted(Permission::Read),
            "x-amz-grant-write" => self.granted(Permission::Write),
            "x-amz-grant-read-acp" => self.granted(Permission::ReadAcp),
            "x-amz-grant-write-acp" => self.granted(Permission::WriteAcp),
            "x-amz-copy-source" => one(&self.copy()?.source),
            "x-amz-metadata-directive" => some(&self.copy()?.metadata_directive),
            "requestobjecttagkeys" => {
                Some(self.request_tags()?.iter().map(|tag| Cow::Borrowed(tag.key.as_str())).collect())
            }
            _ => None,
        }
    }

    /// What a new version is to be, and what an object's lock is to be.
    fn of_upload(&self, name: &str) -> Values<'_> {
        match name {
            "x-amz-storage-class" => some(&self.upload()?.storage_class),
            "object-lock-mode" => one(match self.retention()?.mode {
                RetentionMode::Governance => "GOVERNANCE",
                RetentionMode::Compliance => "COMPLIANCE",
            }),
            "object-lock-retain-until-date" => made((self.retention()?.until_ms / 1000).to_string()),
            "object-lock-remaining-retention-days" => {
                made(self.retention()?.until_ms.saturating_sub(self.now_ms).div_ceil(DAY_MS).to_string())
            }
            "object-lock-legal-hold" => {
                let is_held = match self.operation {
                    ObjectOperation::PutLegalHold { is_held, .. } => *is_held,
                    _ => self.upload()?.legal_hold?,
                };
                one(if is_held { "ON" } else { "OFF" })
            }
            "if-match" | "if-none-match" => {
                let conditions = match self.operation {
                    ObjectOperation::Put(put) => &put.conditions,
                    ObjectOperation::CompleteUpload { conditions, .. } => conditions,
                    ObjectOperation::Delete(one) => &one.conditions,
                    _ => return None,
                };
                let etags = if name == "if-match" { &conditions.if_match } else { &conditions.if_none_match };
                (!etags.is_empty()).then(|| etags.iter().map(|etag| Cow::Borrowed(etag.as_str())).collect())
            }
            _ => None,
        }
    }

    fn list(&self) -> Option<&ListRequest> {
        match self.operation {
            ObjectOperation::List(list) | ObjectOperation::ListVersions(list) | ObjectOperation::ListUploads(list) => {
                Some(list)
            }
            _ => None,
        }
    }

    fn upload(&self) -> Option<&UploadInput> {
        match self.operation {
            ObjectOperation::Put(put) => Some(&put.input),
            ObjectOperation::CreateUpload(input) => Some(input),
            _ => None,
        }
    }

    fn copy(&self) -> Option<&CopyInput> {
        match self.operation {
            ObjectOperation::Put(put) => put.copy.as_ref(),
            ObjectOperation::PutPart(part) => part.copy.as_ref(),
            _ => None,
        }
    }

    fn access(&self) -> Option<&AccessInput> {
        match self.operation {
            ObjectOperation::CreateBucket { access, .. } | ObjectOperation::PutAccess { access, .. } => Some(access),
            ObjectOperation::PutConfiguration { configuration, .. } => match configuration {
                millrace_api::objects::Configuration::Access(access) => Some(access),
                _ => None,
            },
            _ => self.upload().map(|input| &input.access),
        }
    }

    fn request_tags(&self) -> Option<&[Tag]> {
        let tags = match self.operation {
            ObjectOperation::PutTags { tags, .. } => tags,
            _ => &self.upload()?.tags,
        };
        (!tags.is_empty()).then_some(tags)
    }

    fn retention(&self) -> Option<Retention> {
        match self.operation {
            ObjectOperation::PutRetention { retention, .. } => *retention,
            _ => self.upload()?.retention,
        }
    }

    fn version(&self) -> Option<&str> {
        use ObjectOperation as O;
        let version = match self.operation {
            O::Get(conditions) | O::GetSource(conditions) => &conditions.version,
            O::GetAttributes { version, .. }
            | O::PutAccess { version, .. }
            | O::PutTags { version, .. }
            | O::PutRetention { version, .. }
            | O::PutLegalHold { version, .. } => version,
            O::GetAccess(version) | O::GetTags(version) | O::GetRetention(version) | O::GetLegalHold(version) => {
                version
            }
            O::Delete(one) => &one.version,
            _ => return None,
        };
        version.as_deref()
    }

    /// A header with grants, as most clients write it.
    fn granted(&self, permission: Permission) -> Values<'_> {
        let AccessInput::Grants(grants) = self.access()? else { return None };
        let text = |grant: &Grant| match &grant.grantee {
            Grantee::User(id) => format!("id={id}"),
            Grantee::Group(group) => format!("uri={}", uri_of(*group)),
        };
        let given: Vec<String> = grants.iter().filter(|grant| grant.permission == permission).map(text).collect();
        if given.is_empty() { None } else { made(given.join(", ")) }
    }
}

fn name_of(canned: CannedAccess) -> &'static str {
    match canned {
        CannedAccess::Private => "private",
        CannedAccess::PublicRead => "public-read",
        CannedAccess::PublicReadWrite => "public-read-write",
        CannedAccess::AuthenticatedRead => "authenticated-read",
        CannedAccess::BucketOwnerRead => "bucket-owner-read",
        CannedAccess::BucketOwnerFullControl => "bucket-owner-full-control",
        CannedAccess::LogDeliveryWrite => "log-delivery-write",
    }
}

fn uri_of(group: Group) -> &'static str {
    match group {
        Group::AllUsers => "http://acs.amazonaws.com/groups/global/AllUsers",
        Group::AuthenticatedUsers => "http://acs.amazonaws.com/groups/global/AuthenticatedUsers",
        Group::LogDelivery => "http://acs.amazonaws.com/groups/s3/LogDelivery",
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
