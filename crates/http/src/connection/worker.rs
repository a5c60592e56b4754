//! A connection that a worker has dialled in over: frames from here on, whatever they say.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use millrace_access::{Access, Permission};
use millrace_api::SharedWorkerLine;
use tokio::io::ReadBuf;
use tokio::time::interval;

use super::state::{Order, Phase};
use crate::io::Io;

/// How often it is looked whether the worker's key still holds.
const KEY_EVERY: Duration = Duration::from_secs(1);

/// A worker that has dialled in.
pub(crate) struct DialledWorker {
    pub line: SharedWorkerLine,
    /// The app that it serves.
    pub app: String,
    /// The key that it brought.
    pub token: Option<String>,
}

impl DialledWorker {
    /// Whether it may still serve: its key can be revoked while it is connected.
    fn may_serve(&self, access: &Access) -> bool {
        let caller = access.caller(self.token.as_deref());
        caller.is_some_and(|caller| caller.principal.may(Permission::Worker { app: &self.app }))
    }
}

/// Moves bytes between the socket and the worker's line until either ends, or the worker's key does. If the connection does not
/// go on behind its last reply, there is nothing to move.
pub(super) async fn run(mut io: Io, worker: DialledWorker, goes_on: bool) {
    let line = &worker.line;
    let mut looks = pin!(interval(KEY_EVERY));
    if !goes_on {
        return line.close();
    }
    // Nothing here is idle, and no request is late.
    io.state.enter(Phase::Busy);
    let mut is_broken = !io.prefix.is_empty() && line.receive(&std::mem::take(&mut io.prefix)).is_err();
    let mut sending = Bytes::new();
    poll_fn(|context| {
        if matches!(io.state.obey(context), Some(Order::Abort | Order::Drain)) {
            return Poll::Ready(());
        }
        while looks.as_mut().poll_tick(context).is_ready() {
            if !worker.may_serve(&io.state.local.access) {
                return Poll::Ready(());
            }
        }
        while !is_broken {
            let buffers = &mut *io.state.local.buffers.borrow_mut();
            let mut buffer = ReadBuf::new(&mut buffers.read);
            match io.stream.poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    is_broken = line.receive(buffer.filled()).is_err()
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        loop {
            if sending.is_empty() {
                match line.poll_send(context) {
                    Poll::Ready(Some(bytes)) => sending = bytes,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            match io.stream.poll_write(context, &sending) {
                Poll::Ready(Ok(length @ 1..)) => drop(sending.split_to(length)),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        // A stream over TLS keeps what it was given until it is told to send it.
        let _ = io.stream.poll_flush(context);
        Poll::Pending
    })
    .await;
    line.close();
    super::say(&mut io, b"").await;
}
