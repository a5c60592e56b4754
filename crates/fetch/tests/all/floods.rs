//! Floods of frames that carry nothing, as a hostile worker sends them over HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_base::ByteBudget;
use millrace_base::limits::HTTP2_FRAMES;
use millrace_fetch::{HttpFetcher, Options};
use millrace_func::FetchRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::PATIENCE;

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// DATA on the stream of the first request: one byte of padding, and no content.
const PADDING: [u8; 11] = [0, 0, 2, 0, 8, 0, 0, 0, 1, 1, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// A response that has begun on that stream.
const RESPONSE: [u8; 10] = [0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];

/// Sends a frame without an end once a request has come, and counts how often. It reads what is answered.
async fn flood(listener: TcpListener, frame: Vec<u8>, sent: Arc<AtomicUsize>) {
    loop {
        let (stream, _) = listener.accept().await.expect("accepts");
        let (mut reads, mut writes) = stream.into_split();
        let reading = tokio::spawn(async move { while matches!(reads.read(&mut [0; 4096]).await, Ok(1..)) {} });
        writes.write_all(&SETTINGS).await.expect("written");
        sleep(Duration::from_millis(50)).await;
        if frame == PADDING {
            writes.write_all(&RESPONSE).await.expect("written");
        }
        let many = frame.repeat(100);
        while writes.write_all(&many).await.is_ok() {
            sent.fetch_add(100, Ordering::SeqCst);
        }
        reading.abort();
    }
}

async fn start(frame: &[u8]) -> (String, Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (url, sent) = (format!("http://{}/", listener.local_addr().expect("bound")), Arc::<AtomicUsize>::default());
    let serving = tokio::spawn(flood(listener, frame.to_vec(), Arc::clone(&sent)));
    (url, sent, serving)
}

fn get(url: &str) -> FetchRequest {
    let (method, url, timeout_ms) = ("GET".to_owned(), url.to_owned(), 60_000);
    FetchRequest {
        method,
        url,
        headers: Vec::new(),
        body: Default::default(),
        timeout_ms,
        response_bytes: 10,
        retries: 0,
    }
}

#[tokio::test]
async fn a_server_that_floods_loses_its_connection_and_all_that_is_on_it() {
    let window = [&[0, 0, 4, 8, 0, 0, 0, 0, 0][..], &[0, 0, 0, 1]].concat();
    for (name, frame) in
        [("PING", &PING[..]), ("SETTINGS", &SETTINGS), ("WINDOW_UPDATE", &window), ("padding", &PADDING)]
    {
        let (url, sent, serving) = start(frame).await;
        let fetcher = HttpFetcher::new(&Options::default());
        let budget = ByteBudget::unlimited();
        let (one, other) = (get(&url), get(&url));
        let both = async { tokio::join!(fetcher.exchange(one, true, &budget), fetcher.exchange(other, true, &budget)) };
        let (one, other) = timeout(PATIENCE, both).await.expect("long before their own time is over");
        for failure in [one.expect_err(name), other.expect_err(name)] {
            // What was asked for may have been done: for a worker, the attempt is lost.
            assert!(!failure.is_late && !failure.is_unsent, "{name}: {failure:?}");
            let message = &failure.error.message;
            // h2 has a limit of its own for DATA with little content.
            let is_of_h2 = frame == PADDING && message.contains("too_many_data_frames");
            assert!(message.contains("too many frames") || is_of_h2, "{name}: {message}");
        }
        // The rest lies in the buffers of the two sockets.
        let most = 2 * HTTP2_FRAMES as usize + (8 << 20) / frame.len();
        assert!(sent.load(Ordering::SeqCst) < most, "{name}: {sent:?} frames were taken");
        serving.abort();
    }
}
