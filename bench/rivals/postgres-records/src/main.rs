//! Records as JSONB in PostgreSQL over HTTP, with as little as possible between a request and its statement.
//!
//! It serves `GET`, `PUT` and `PATCH /records/personinfo/{id}`. A patch is one `set` of one path of fields, as
//! `[{"op":"set","path":".age","value":61}]`. Statements are prepared once for each connection and pipelined. Each is
//! a transaction.
//!
//! - `PORT`: where it listens, on 127.0.0.1
//! - `PGHOST`, `PGUSER`, `PGDATABASE`: the folder of PostgreSQL's socket, the user and the database
//! - `THREADS`: threads, each with a listener and database connections of its own (1)
//! - `POOL`: database connections over all threads (16)

use std::cell::Cell;
use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpSocket;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, Statement};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn Error + Send + Sync>;

const GET: &str = "SELECT record FROM personinfo WHERE id = $1";
const PUT: &str = "INSERT INTO personinfo VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET record = excluded.record";
const SET: &str = "UPDATE personinfo SET record = jsonb_set(record, $2, $3, false) WHERE id = $1";

/// JSONB on the wire: the version, then the text.
#[derive(Debug)]
struct Json(Bytes);

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        match raw {
            [1, text @ ..] => Ok(Self(Bytes::copy_from_slice(text))),
            _ => Err("not JSONB of version 1".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }
}

impl ToSql for Json {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        out.put_u8(1);
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}

/// One database connection and its statements.
struct Connection {
    client: Client,
    get: Statement,
    put: Statement,
    set: Statement,
}

/// The connections of a thread, used in turn.
struct Pool {
    connections: Vec<Connection>,
    next: Cell<usize>,
}

#[derive(Deserialize)]
struct Operation<'a> {
    op: &'a str,
    path: &'a str,
    #[serde(borrow)]
    value: &'a RawValue,
}

fn variable(name: &str, default: usize) -> usize {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let threads = variable("THREADS", 1).max(1);
    let connections = (variable("POOL", 16) / threads).max(1);
    let port = u16::try_from(variable("PORT", 8081)).unwrap_or(8081);
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = runtime.map_err(Failure::from).and_then(|runtime| {
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, serve(port, connections))
        });
        if let Err(error) = outcome {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    let others: Vec<_> = (1..threads).map(|_| std::thread::spawn(serve)).collect();
    serve();
    for other in others {
        other.join().ok();
    }
}

async fn connect() -> Result<Connection, Failure> {
    let text = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let mut config = Config::new();
    config.host(text("PGHOST", "/var/run/postgresql")).user(text("PGUSER", "records"));
    config.dbname(text("PGDATABASE", "postgres"));
    let (client, connection) = config.connect(NoTls).await?;
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    });
    let (get, put, set) = (client.prepare(GET).await?, client.prepare(PUT).await?, client.prepare(SET).await?);
    Ok(Connection { client, get, put, set })
}

async fn serve(port: u16, connections: usize) -> Result<(), Failure> {
    let mut pool = Pool { connections: Vec::new(), next: Cell::new(0) };
    for _ in 0..connections {
        pool.connections.push(connect().await?);
    }
    let pool = Rc::new(pool);
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let listener = socket.listen(4096)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pool = pool.clone();
        tokio::task::spawn_local(async move {
            let answer = service_fn(move |request| answer(pool.clone(), request));
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(None).pipeline_flush(true);
            // A client that disconnects is not an error of the server.
            builder.serve_connection(TokioIo::new(stream), answer).await.ok();
        });
    }
}

fn reply(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

async fn answer(pool: Rc<Pool>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
    if request.uri().path() == "/healthz" {
        return Ok(reply(StatusCode::OK, Bytes::from_static(b"ok")));
    }
    match record(&pool, request).await {
        Ok(response) => Ok(response),
        Err(error) => Ok(reply(StatusCode::INTERNAL_SERVER_ERROR, Bytes::from(error.to_string()))),
    }
}

async fn record(pool: &Pool, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
    let (head, body) = request.into_parts();
    let Some(id) = head.uri.path().strip_prefix("/records/personinfo/") else {
        return Ok(reply(StatusCode::NOT_FOUND, Bytes::new()));
    };
    let at = pool.next.get();
    pool.next.set((at + 1) % pool.connections.len());
    let connection = &pool.connections[at];
    let changed = match head.method {
        Method::GET => {
            let row = connection.client.query_opt(&connection.get, &[&id]).await?;
            let Some(row) = row else { return Ok(reply(StatusCode::NOT_FOUND, Bytes::new())) };
            let mut response = reply(StatusCode::OK, row.try_get::<_, Json>(0)?.0);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok(response);
        }
        Method::PUT => {
            let value = Json(body.collect().await?.to_bytes());
            connection.client.execute(&connection.put, &[&id, &value]).await?
        }
        Method::PATCH => {
            let body = body.collect().await?.to_bytes();
            let [operation]: [Operation<'_>; 1] = serde_json::from_slice(&body)?;
            let (Operation { op: "set", .. }, Some(path)) = (&operation, operation.path.strip_prefix('.')) else {
                return Ok(reply(StatusCode::BAD_REQUEST, Bytes::new()));
            };
            let path: Vec<&str> = path.split('.').collect();
            let value = Json(Bytes::copy_from_slice(operation.value.get().as_bytes()));
            connection.client.execute(&connection.set, &[&id, &path, &value]).await?
        }
        _ => return Ok(reply(StatusCode::METHOD_NOT_ALLOWED, Bytes::new())),
    };
    Ok(reply(if changed == 1 { StatusCode::OK } else { StatusCode::NOT_FOUND }, Bytes::new()))
}
