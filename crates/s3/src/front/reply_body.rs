//! A reply's body: nothing, bytes that are there, or a content that is read as the client takes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use millrace_api::Error;
use millrace_api::objects::BodyRead;

type Next<R> = Pin<Box<dyn Future<Output = (R, Result<Option<Bytes>, Error>)>>>;

/// A reply's body.
pub enum ReplyBody<R> {
    /// There already.
    Whole(Bytes),
    /// Read as it is taken.
    Stream(Reading<R>),
}

/// A content that is being read.
pub struct Reading<R> {
    /// Bucket and key, for the log.
    object: Box<(String, String)>,
    /// Read before the head left.
    first: Option<Bytes>,
    reader: Option<R>,
    next: Option<Next<R>>,
    left_bytes: u64,
}

impl<R: BodyRead + 'static> ReplyBody<R> {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// So many bytes of an object's content, from where it stands. The first piece is read at once: a content that
    /// fails there has a status and a reason still.
    ///
    /// # Errors
    /// Those of the reader.
    pub async fn reading(object: (&str, &str), mut reader: R, length: u64) -> Result<Self, Error> {
        let first = reader.next().await?;
        let object = Box::new((object.0.to_owned(), object.1.to_owned()));
        Ok(Self::Stream(Reading { object, first, reader: Some(reader), next: None, left_bytes: length }))
    }
}

impl<R: BodyRead + 'static> Reading<R> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left_bytes == 0 {
            return Poll::Ready(None);
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(self.take(first))));
        }
        if self.next.is_none() {
            let Some(mut reader) = self.reader.take() else { return Poll::Ready(None) };
            self.next = Some(Box::pin(async move {
                let bytes = reader.next().await;
                (reader, bytes)
            }));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let (reader, bytes) = ready!(next.as_mut().poll(context));
        self.next = None;
        match bytes {
            Ok(Some(bytes)) => {
                self.reader = Some(reader);
                Poll::Ready(Some(Ok(self.take(bytes))))
            }
            // The head has left. Only a connection that breaks off tells the client that the rest does not come.
            Ok(None) => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            Err(error) => {
                let (bucket, key) = &*self.object;
                tracing::error!(%error, bucket, key, "an object cannot be read to its end");
                Poll::Ready(Some(Err(io::Error::other(error.message))))
            }
        }
    }
}

impl<R> Reading<R> {
    /// As much of a piece as is still wanted.
    fn take(&mut self, mut bytes: Bytes) -> Bytes {
        bytes.truncate(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        self.left_bytes -= bytes.len() as u64;
        bytes
    }
}

impl<R: BodyRead + Unpin + 'static> Body for ReplyBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            ReplyBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            ReplyBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            ReplyBody::Stream(reading) => reading.poll(context).map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ReplyBody::Whole(bytes) => bytes.is_empty(),
            ReplyBody::Stream(reading) => reading.left_bytes == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            ReplyBody::Whole(bytes) => bytes.len() as u64,
            ReplyBody::Stream(reading) => reading.left_bytes,
        })
    }
}
