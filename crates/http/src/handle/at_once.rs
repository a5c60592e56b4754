//! A backend that answers at once: what is measured with it is the front's own. The example `hello` has it too.

use bytes::Bytes;
use millrace_api::objects::ObjectAdministration;
use millrace_api::{
    AppFile, AppInfo, Backups, Begun, CallRequest, Calls, DeadLetter, Deployed, Deployments, Error, Health,
    IdempotencyKey, Intervention, Invocation, Invocations, InvocationsRequest, Page, Principal, Records, RouteReply,
    RouteRequest, Schedule, SchedulesRequest, SendRequest, Serving, StateReply, StateRequest,
};
use millrace_base::ErrorCode;

/// A backend without state. It answers calls and routes at once, and nothing else.
#[derive(Clone)]
pub(crate) struct AtOnce;

fn refused<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::NotYetSupported, "only calls and routes"))
}

impl Calls for AtOnce {
    fn call(&self, _: &Principal, _: CallRequest<'_>) -> Begun<Bytes> {
        Ok(Bytes::from_static(b"\"ok\"")).into()
    }

    async fn send(&self, _: &Principal, _: SendRequest<'_>) -> Result<String, Error> {
        refused()
    }

    fn route(&self, _: &Principal, _: RouteRequest) -> Begun<RouteReply> {
        let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
        Ok(RouteReply { status: 200, headers, body: Bytes::from_static(b"ok") }).into()
    }

    async fn state(&self, _: &Principal, _: StateRequest<'_>) -> Result<StateReply, Error> {
        refused()
    }
}

impl Invocations for AtOnce {
    async fn invocation(&self, _: &Principal, _: &str, _: bool) -> Result<Invocation, Error> {
        refused()
    }

    async fn invocations(&self, _: &Principal, _: InvocationsRequest<'_>) -> Result<Page<Invocation>, Error> {
        refused()
    }

    async fn intervene(&self, _: &Principal, _: &str, _: Intervention) -> Result<(), Error> {
        refused()
    }

    async fn signal(
        &self,
        _: &Principal,
        _: &str,
        _: &str,
        _: Bytes,
        _: Option<IdempotencyKey<&str>>,
    ) -> Result<(), Error> {
        refused()
    }

    async fn dead_letters(&self, _: &Principal, _: bool, _: Option<&str>, _: usize) -> Result<Page<DeadLetter>, Error> {
        refused()
    }

    async fn retry_dead_letter(&self, _: &Principal, _: &str) -> Result<(), Error> {
        refused()
    }

    async fn drop_dead_letter(&self, _: &Principal, _: &str) -> Result<(), Error> {
        refused()
    }

    async fn schedules(&self, _: &Principal, _: SchedulesRequest<'_>) -> Result<Page<Schedule>, Error> {
        refused()
    }
}

impl Deployments for AtOnce {
    async fn deploy(&self, _: &Principal, _: &str, _: Vec<AppFile>) -> Result<Deployed, Error> {
        refused()
    }

    async fn remove_app(&self, _: &Principal, _: &str) -> Result<(), Error> {
        refused()
    }

    async fn apps(&self, _: &Principal) -> Result<Vec<AppInfo>, Error> {
        refused()
    }
}

impl Records for AtOnce {}

impl ObjectAdministration for AtOnce {}

impl Backups for AtOnce {}

impl Serving for AtOnce {
    fn health(&self) -> Health {
        Health { is_serving: true, hindrance: None, has_test_clock: false }
    }
}
