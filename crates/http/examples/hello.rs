//! The front's own cost: one core, a backend that answers at once.
//!
//! `hello plain ADDR` serves the same reply with bare hyper, `hello front ADDR` with this front
//! (try `GET /user/login` and `POST /call/user/k/login`). It prints nothing but its address; read
//! its CPU time from the system, divide by the requests of the load generator.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use millrace_api::{
    AppFile, AppInfo, Begun, CallRequest, Calls, DeadLetter, Deployed, Deployments, Error, Health, IdempotencyKey,
    Intervention, Invocation, Invocations, InvocationsRequest, Page, Principal, Records, RouteReply, RouteRequest,
    Schedule, SchedulesRequest, SendRequest, Serving, StateReply, StateRequest,
};
use millrace_base::ErrorCode;
use millrace_http::{Front, Options, bind, serve};
use prometheus_client::registry::Registry;

/// The server's allocator, so that figures carry over.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    fn mi_collect(force: bool);
}

fn release_memory() {
    // SAFETY: may be called at any time, on any thread; it looks at the thread's own heap.
    unsafe { mi_collect(true) }
}

#[derive(Clone)]
struct Hello;

fn refused<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::NotYetSupported, "only calls and routes"))
}

impl Calls for Hello {
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

impl Invocations for Hello {
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

impl Deployments for Hello {
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

impl Records for Hello {}

impl millrace_api::objects::ObjectAdministration for Hello {}

impl millrace_api::Backups for Hello {}

impl Serving for Hello {
    fn health(&self) -> Health {
        Health { is_serving: true, hindrance: None }
    }
}

async fn plain(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"ok")));
    let kind = http::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

async fn serve_plain(listener: std::net::TcpListener) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::task::spawn_local(async move {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.header_read_timeout(None);
            let _ = builder.serve_connection(TokioIo::new(stream), service_fn(plain)).await;
        });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| "front".to_owned());
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:8088").parse()?;
    let listener = bind(address)?;
    println!("{mode} on {address}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    if mode == "plain" {
        local.block_on(&runtime, serve_plain(listener))?;
    } else {
        let options = Options { release_memory: Some(release_memory), ..Options::default() };
        let front = Front::new(options, Registry::default())?;
        local.block_on(&runtime, serve(listener, Hello, front, pending()))?;
    }
    Ok(())
}
