//! A link between two nodes that can be cut: connections stay open, and nothing goes through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Carries everything between whoever connects and an address.
pub struct CutLink {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl CutLink {
    pub fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&is_cut);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if let Ok(far) = TcpStream::connect(&address) {
                    carry(&near, &far, &shared);
                    carry(&far, &near, &shared);
                }
            }
        });
        Self { port, is_cut }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn carry(from: &TcpStream, to: &TcpStream, is_cut: &Arc<AtomicBool>) {
    let mut from = from.try_clone().expect("a handle");
    let mut to = to.try_clone().expect("a handle");
    let is_cut = Arc::clone(is_cut);
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while is_cut.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
