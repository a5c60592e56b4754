//! Who may do what with a bucket or an object, as access lists and their relatives say it.

use serde::{Deserialize, Serialize};

/// What a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Permission {
    /// All of the others.
    FullControl,
    /// Of a bucket: its list. Of an object: its content.
    Read,
    /// Of a bucket: to make, replace and delete objects.
    Write,
    /// To read the access list.
    ReadAcp,
    /// To replace the access list.
    WriteAcp,
}

/// Groups that grants can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Group {
    /// Anybody, also without a signature.
    AllUsers,
    /// Anybody with a key of this server.
    AuthenticatedUsers,
    /// Accepted and kept; nobody is in it.
    LogDelivery,
}

/// To whom a grant is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Grantee {
    /// A user, by canonical id. Fronts turn e-mail addresses into ids.
    User(String),
    /// A group.
    Group(Group),
}

/// One line of an access list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// To whom.
    pub grantee: Grantee,
    /// What.
    pub permission: Permission,
}

/// An access list with its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// The owner's canonical id.
    pub owner: String,
    /// In the order in which they were given; at most 100.
    pub grants: Vec<Grant>,
}

/// Access lists that have a name. What each stands for depends on who owns bucket and object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CannedAccess {
    /// The owner alone.
    #[default]
    Private,
    /// Everybody reads.
    PublicRead,
    /// Everybody reads and writes.
    PublicReadWrite,
    /// Every user reads.
    AuthenticatedRead,
    /// The bucket's owner reads.
    BucketOwnerRead,
    /// The bucket's owner has full control.
    BucketOwnerFullControl,
    /// Log delivery may write.
    LogDeliveryWrite,
}

/// The access list that a request gives with what it makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessInput {
    /// None was given: private.
    #[default]
    None,
    /// By name.
    Canned(CannedAccess),
    /// Grants, as headers give them: the owner is who makes it.
    Grants(Vec<Grant>),
    /// A whole list with its owner, as a document gives it.
    List(AccessList),
}

/// Who owns new objects of a bucket, and whether access lists count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ownership {
    /// The bucket's owner owns everything, and access lists do not count.
    BucketOwnerEnforced,
    /// The bucket's owner owns what was written with the canned list `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// Who writes an object owns it.
    #[default]
    ObjectWriter,
}

/// The four switches that keep a bucket from being public.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicAccessBlock {
    /// Refuse new public access lists.
    pub block_public_acls: bool,
    /// Let public grants not count.
    pub ignore_public_acls: bool,
    /// Refuse new public policies.
    pub block_public_policy: bool,
    /// Let a public policy count for the owner's own users alone.
    pub restrict_public_buckets: bool,
}
