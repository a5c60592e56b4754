//! How results under idempotency keys are named.

use std::hash::Hasher;

use millrace_base::{EntityKey, fingerprint};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::request::Sequence;

/// What the name of a result under an entity's key begins with.
const ENTITY: &[u8] = b"k";

/// The same of a workflow's, which is signalled.
const WORKFLOW: &[u8] = b"g";

/// What the hash of a name begins with.
const HASHED: u8 = b'h';

/// How results under idempotency keys are named. A data directory has one way for all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultNames {
    /// By whose key it is, and the key.
    Plain,
    /// By 128 bits of SipHash-2-4 of that, under this key. There are as many results as requests of a day, each in
    /// memory, in the log and in the checkpoint. Most of a result is its name. Nobody who does not know the key can
    /// find two requests of one name (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
    Hashed([u8; 16]),
}

impl ResultNames {
    /// `scope` is an [`entity_scope`] or a [`workflow_scope`], in parts.
    pub(super) fn name(self, scope: &[&[u8]], key: &str) -> Box<[u8]> {
        let key = key.as_bytes();
        let hash_key = match self {
            ResultNames::Plain => return [&scope.concat(), key].concat().into(),
            ResultNames::Hashed(hash_key) => hash_key,
        };
        let mut hasher = SipHasher24::new_with_key(&hash_key);
        scope.iter().for_each(|part| hasher.write(part));
        hasher.write(key);
        let mut name = [HASHED; 17];
        name[1..].copy_from_slice(&hasher.finish128().as_bytes());
        Box::new(name)
    }

    /// Calls and sends, and routes that begin with the entity, share its keys; what is asked is in the fingerprint.
    pub(crate) fn of_call(self, entity: &EntityKey, handler: &str, input: &[u8], key: &str, verb: &[u8]) -> ResultKey {
        ResultKey {
            field: self.name(&[ENTITY, entity.as_bytes()], key),
            fingerprint: fingerprint(&[verb, handler.as_bytes(), input]),
        }
    }

    /// A route's key is scoped to what it calls first.
    pub(crate) fn of_route(self, scope: &[u8], key: &str, fingerprint: u64) -> ResultKey {
        ResultKey { field: self.name(&[scope], key), fingerprint }
    }

    /// A signal's key is scoped to its workflow.
    pub(crate) fn of_signal(self, id: Sequence, name: &str, payload: &[u8], key: &str) -> ResultKey {
        ResultKey {
            field: self.name(&[WORKFLOW, &id.encode()], key),
            fingerprint: fingerprint(&[name.as_bytes(), payload]),
        }
    }
}

/// Where a request's result is kept, and what tells it from another request under that key.
pub(crate) struct ResultKey {
    pub(super) field: Box<[u8]>,
    pub(super) fingerprint: u64,
}

/// What the names of keys of an entity begin with, before they are hashed. No key of one entity can hide another's, as
/// no [`EntityKey`] is the beginning of another.
pub(crate) fn entity_scope(entity: &EntityKey) -> Box<[u8]> {
    [ENTITY, entity.as_bytes()].concat().into()
}

/// The same of a workflow that is signalled.
pub(crate) fn workflow_scope(id: Sequence) -> Box<[u8]> {
    [WORKFLOW, &id.encode()].concat().into()
}
