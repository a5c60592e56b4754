//! A wall clock that a test moves. A library is loaded before the C library. It adds an offset that the test writes
//! into a file. So waits of minutes or years are tested in moments.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use serde_json::Value;

use crate::preloaded::Preloaded;
use crate::{Server, ServerOptions, wait_until};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset_seconds;

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("MILLRACE_TEST_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset_seconds = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && offset_seconds) time->tv_sec += *offset_seconds;
    return result;
}
"#;

/// No message has attempts for longer.
const MOST_MINUTES: u32 = 100;

/// A clock ahead of the machine's.
pub struct MovedClock {
    library: Preloaded,
    ahead: Duration,
}

impl MovedClock {
    /// Makes the clock. Without a C compiler it returns `None` and prints a line that says so.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Option<Self> {
        let library = Preloaded::build(SOURCE, "MILLRACE_TEST_CLOCK_FILE", size_of::<u64>())?;
        Some(Self { library, ahead: Duration::ZERO })
    }

    /// Gives this clock to a server.
    pub fn give(&self, options: &mut ServerOptions) {
        self.library.give(options);
    }

    /// Moves the clock forward. A server that sleeps notices when something else wakes it, such as a request.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn forward(&mut self, more: Duration) {
        self.ahead += more;
        self.library.shared.write_all_at(&self.ahead.as_secs().to_ne_bytes(), 0).expect("written");
    }

    /// Sets the clock back to the machine's.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set_right(&mut self) {
        self.ahead = Duration::ZERO;
        self.forward(Duration::ZERO);
    }

    /// Moves the clock until a server that has it holds this number of dead letters.
    ///
    /// # Panics
    /// When they are not within half a minute, after what is long enough for any message.
    pub fn wait_for_dead_letters(&mut self, server: &Server, count: usize) -> Vec<Value> {
        let mut letters = Vec::new();
        let mut minutes = 0;
        wait_until("there are so many dead letters", || {
            // As long as the longest wait between two attempts; asking wakes every shard. A busy machine needs more time for the
            // attempts, not more minutes between them.
            if minutes < MOST_MINUTES {
                self.forward(Duration::from_secs(60));
                minutes += 1;
            }
            for _ in 0..4 {
                letters = server.dead_letters();
                if letters.len() >= count {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            false
        });
        letters
    }
}
