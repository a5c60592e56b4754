//! The size of a request's future.

use super::*;
use millrace_api::{
    AppFile, AppInfo, DeadLetter, Deployed, Deployments, Health, IdempotencyKey, Intervention, Invocation, Invocations,
    InvocationsRequest, Page, Records, RouteReply, Schedule, SchedulesRequest, SendRequest, Serving, StateReply,
    StateRequest,
};

/// Answers nothing, so that its futures have no size.
#[derive(Clone)]
struct Nothing;

impl millrace_api::objects::ObjectAdministration for Nothing {}

impl millrace_api::Backups for Nothing {}

fn nothing<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::Internal, ""))
}

impl Calls for Nothing {
    fn call(&self, _: &Principal, _: CallRequest<'_>) -> Begun<Bytes> {
        nothing().into()
    }

    async fn send(&self, _: &Principal, _: SendRequest<'_>) -> Result<String, Error> {
        nothing()
    }

    fn route(&self, _: &Principal, _: RouteRequest) -> Begun<RouteReply> {
        nothing().into()
    }

    async fn state(&self, _: &Principal, _: StateRequest<'_>) -> Result<StateReply, Error> {
        nothing()
    }
}

impl Invocations for Nothing {
    async fn invocation(&self, _: &Principal, _: &str, _: bool) -> Result<Invocation, Error> {
        nothing()
    }

    async fn invocations(&self, _: &Principal, _: InvocationsRequest<'_>) -> Result<Page<Invocation>, Error> {
        nothing()
    }

    async fn intervene(&self, _: &Principal, _: &str, _: Intervention) -> Result<(), Error> {
        nothing()
    }

    async fn signal(
        &self,
        _: &Principal,
        _: &str,
        _: &str,
        _: Bytes,
        _: Option<IdempotencyKey<&str>>,
    ) -> Result<(), Error> {
        nothing()
    }

    async fn dead_letters(&self, _: &Principal, _: bool, _: Option<&str>, _: usize) -> Result<Page<DeadLetter>, Error> {
        nothing()
    }

    async fn retry_dead_letter(&self, _: &Principal, _: &str) -> Result<(), Error> {
        nothing()
    }

    async fn drop_dead_letter(&self, _: &Principal, _: &str) -> Result<(), Error> {
        nothing()
    }

    async fn schedules(&self, _: &Principal, _: SchedulesRequest<'_>) -> Result<Page<Schedule>, Error> {
        nothing()
    }
}

impl Deployments for Nothing {
    async fn deploy(&self, _: &Principal, _: &str, _: Vec<AppFile>) -> Result<Deployed, Error> {
        nothing()
    }

    async fn remove_app(&self, _: &Principal, _: &str) -> Result<(), Error> {
        nothing()
    }

    async fn apps(&self, _: &Principal) -> Result<Vec<AppInfo>, Error> {
        nothing()
    }
}

impl Records for Nothing {}

impl Serving for Nothing {
    fn health(&self) -> Health {
        Health { is_serving: true, hindrance: None }
    }
}

fn output_size<'a, F: Future>(_: impl Fn(&'a Session<Nothing>, &'a mut Request<RequestBody>) -> F) -> usize {
    size_of::<F>()
}

/// hyper moves the future of every request into place, so its size is paid for each time; and whoever waits keeps it.
#[test]
fn a_requests_future_is_small() {
    let (whole, beginning) = (output_size(handle::<Nothing>), output_size(run::<Nothing>));
    assert!(whole <= 640 && beginning <= 1024, "{whole} and {beginning} bytes");
}
