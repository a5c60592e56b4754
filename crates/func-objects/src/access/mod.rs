//! Whether a requester may do what it asks for: policy, access lists, ownership, what keeps a bucket from being public.
//!
//! All of it is pure. [`Ask`] puts together what the parts look at. Which actions an operation needs says `actions`,
//! which values a policy's conditions see says `context`, and `authorise` decides.

pub(crate) mod acl;
pub(crate) mod actions;
mod anonymous;
mod authorise;
mod context;
mod glob;
pub(crate) mod policy;

use millrace_api::objects::{ListRequest, ObjectOperation, ObjectRequest, Refusal};
use millrace_base::Error;

use crate::rows::VersionRow;
use crate::settings::Settings;
use acl::{List, Rules};
use authorise::{Bucket, Target, is_allowed};
use context::Context;
use policy::Verdict;

pub(crate) use policy::Policy;

/// A request, and what it is judged by.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub settings: &'a Settings,
    pub request: &'a ObjectRequest<'a>,
    pub now_ms: u64,
}

/// What an action needs to know of an object or an upload.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known<'a> {
    list: Option<List<'a>>,
    tags: &'a [millrace_api::objects::Tag],
}

impl<'a> Known<'a> {
    /// Of an upload: who began it.
    pub(crate) fn begun_by(owner: &'a str) -> Self {
        Self { list: Some(List { owner, grants: &[] }), tags: &[] }
    }
}

impl<'a> From<&'a VersionRow> for Known<'a> {
    fn from(row: &'a VersionRow) -> Self {
        Self { list: Some(List { owner: &row.owner, grants: &row.grants }), tags: &row.input.tags }
    }
}

fn denied() -> Error {
    Refusal::AccessDenied.error("Access Denied")
}

impl<'a> Ask<'a> {
    /// The operation, or the write that is checked.
    pub(crate) fn operation(&self) -> &'a ObjectOperation {
        match &self.request.operation {
            ObjectOperation::CheckWrite { write, .. } => write,
            operation => operation,
        }
    }

    /// Who owns new objects, and which lists are refused.
    pub(crate) fn rules(&self) -> Rules {
        self.settings.rules()
    }

    /// Refuses the operation if the requester may not do all that it needs.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn check(&self, known: Known<'_>) -> Result<(), Error> {
        self.check_owner()?;
        let requester = &self.request.requester;
        if requester.id.is_none()
            && !requester.is_system
            && let Some(why) = anonymous::refusal(self.operation())
        {
            return Err(Refusal::AccessDenied.error(why));
        }
        let mut needed = actions::of(self.operation()).into_iter();
        let is_allowed = needed.all(|(action, is_object)| self.allows(action, is_object, known));
        if is_allowed { Ok(()) } else { Err(denied()) }
    }

    /// Whether the requester may do something with the object.
    pub(crate) fn may(&self, action: &str, known: Known<'_>) -> bool {
        self.allows(action, true, known)
    }

    /// Refuses what only the node and its administrator may do.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn check_system(&self) -> Result<(), Error> {
        if self.request.requester.is_system { Ok(()) } else { Err(denied()) }
    }

    /// Who becomes the owner of what is written: an app is nobody who could own something, so the bucket's owner does.
    pub(crate) fn writer(&self) -> Option<&'a str> {
        let requester = &self.request.requester;
        if requester.app().is_some() { Some(&self.settings.row.owner) } else { requester.id }
    }

    fn check_owner(&self) -> Result<(), Error> {
        let expected = self.request.requester.expected_bucket_owner;
        if expected.is_empty() || expected == self.settings.row.owner { Ok(()) } else { Err(denied()) }
    }

    fn allows(&self, action: &str, is_object: bool, known: Known<'_>) -> bool {
        if self.request.requester.is_system {
            return true;
        }
        let row = &self.settings.row;
        let bucket = Bucket {
            name: self.request.bucket,
            access: List { owner: &row.owner, grants: &row.grants },
            policy: self.settings.policy.as_deref(),
            rules: self.rules(),
            is_of_asking_app: row.app.is_some() && row.app.as_deref() == self.request.requester.app(),
        };
        let target =
            if is_object { Target::Object { key: self.request.key, access: known.list } } else { Target::Bucket };
        let context = Context {
            request: self.request,
            operation: self.operation(),
            existing_tags: known.tags,
            now_ms: self.now_ms,
        };
        if is_object && known.list.is_none() && authorise::tells_absence(action) {
            // S3 tells that an object is not there to whoever could see it in a list, and to nobody else.
            let prefix = self.request.key.to_owned();
            let list = ObjectOperation::List(ListRequest { prefix, ..ListRequest::default() });
            let asked_to_list = Context { operation: &list, existing_tags: &[], ..context };
            return authorise::verdict(&bucket, action, target, &context) != Verdict::Deny
                && is_allowed(&bucket, "s3:ListBucket", Target::Bucket, &asked_to_list);
        }
        is_allowed(&bucket, action, target, &context)
    }
}

#[cfg(test)]
mod tests;
