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
use millrace_http::{Front, Options, bind, serve};
use prometheus_client::registry::Registry;

use crate::at_once::AtOnce;

#[path = "../src/handle/at_once.rs"]
mod at_once;

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
        local.block_on(&runtime, serve(listener, AtOnce, front, pending()))?;
    }
    Ok(())
}
