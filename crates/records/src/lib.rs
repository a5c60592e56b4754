//! The front of typed records: requests of three families of URLs, translated to operations of
//! `millrace_api` and to changes of the registry, and their replies back.
//!
//! | family | URLs | errors |
//! |---|---|---|
//! | native | `/records/…`, `/schemas/…` | problem documents |
//! | classic | `/{type}/get/{id}` and its like, `/putschema/{type}`, `/delschema/{type}` | problem documents |
//! | registry | `/`, `/subjects/…`, `/schemas/ids/…`, `/config`, `/mode`, `/compatibility/…` | the Confluent Schema Registry's |
//!
//! Promises: a request that is malformed reaches no record; what reads one record costs no more
//! allocation than a call. Knows the `http` crate's words (statuses, headers), but no server: the
//! front that listens (`millrace-http`) hands over whole requests, and drives [`ChangeStream`].
//! Holds nothing but what is cheaper to have at hand on each core ([`Records`]). Must not depend on
//! the node, shards or the store.

mod body;
mod changes;
mod check;
mod classic;
mod condition;
mod local;
mod media;
mod operation;
mod read;
mod registry;
mod request;
mod types;
pub mod url;
mod write;

use http::HeaderMap;
use millrace_api as api;
use millrace_api::{Deployments, Principal};
use millrace_base::Error;

pub use changes::{ChangeStream, error_event};
pub use classic::error_headers;
pub use condition::tag_value;
pub use local::{Records, Turn, Turns};
pub use media::{REGISTRY as REGISTRY_MEDIA, wants_events};
pub use operation::{Family, Operation};
pub use read::Read;
pub use registry::{is_registry_path, registry_constant, registry_error};
pub use request::{IDEMPOTENCY_KEY, Reply, Request, RequestFacts, idempotency_key};
pub use write::Write;

impl Records {
    /// Answers any operation; one for which [`Operation::is_read`] or [`Operation::is_write`] holds is cheaper
    /// through [`Records::begin_read`] or [`Records::begin_write`].
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn answer<B: Deployments + api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        operation: Operation,
        request: Request<'_>,
    ) -> Result<Reply, Error> {
        match operation {
            _ if operation.is_read() => {
                let (begun, read) = self.begin_read(backend, who, operation, &request)?;
                self.end_read(read, (request.seen, request.headers), begun.reply().await?)
            }
            _ if operation.is_write() => {
                let (begun, write) = self.begin_write(backend, who, operation, &request)?;
                Ok(self.end_write(write, request.headers, begun.reply().await?))
            }
            Operation::FindRecords => self.find(backend, who, request).await,
            Operation::GetRecords => self.get_many(backend, who, request).await,
            Operation::RecordChanges => self.changes(backend, who, request).await,
            Operation::Schemas if !is_registry_list(request.query, &request.headers) => {
                self.types(backend, request).await
            }
            Operation::GetSchema => self.get_type(backend, request).await,
            Operation::PutSchema => self.put_type(backend, who, request).await,
            Operation::DeleteSchema => self.delete_type(backend, who, request, false).await,
            Operation::SweepRecords => self.sweep(backend, who, request).await,
            _ if operation.family() == Family::Classic => self.classic(backend, who, operation, request).await,
            _ => self.registry_operation(backend, who, operation, request).await,
        }
    }
}

/// Whether `GET /schemas` is asked by a client of the Schema Registry: it says so in `Accept`, or
/// asks for what only that one has.
#[must_use]
pub fn is_registry_list(query: Option<&str>, headers: &HeaderMap) -> bool {
    query.is_some_and(|query| !query.is_empty()) || media::wants_registry(headers)
}
