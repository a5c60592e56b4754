//! The disk under a server's log, which a test watches and makes fail. A library is loaded before the C library. It
//! counts the syncs of the log's segments, holds them up, and answers single writes and syncs with an error.

use std::os::unix::fs::FileExt;

use crate::ServerOptions;
use crate::preloaded::Preloaded;

/// Only segments in use count (`log/…/….log`). A segment that is prepared for later may fail and be made again.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct page { int failing_syncs, failing_writes, failures, is_held, waiting, syncs; };
static volatile struct page *page;

__attribute__((constructor)) static void open_page(void) {
    const char *path = getenv("MILLRACE_TEST_DISK");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) page = mapped;
    close(file);
}

static int is_log(int file) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 4) return 0;
    name[length] = 0;
    return strstr(name, "/data/log/") && !strcmp(name + length - 4, ".log");
}

/* Takes one of the failures that are left. */
static int fails(volatile int *left) {
    int before = *left;
    while (before > 0 && !__sync_bool_compare_and_swap(left, before, before - 1)) before = *left;
    if (before <= 0) return 0;
    __sync_fetch_and_add(&page->failures, 1);
    errno = EIO;
    return 1;
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (page && is_log(file)) {
        if (page->is_held) {
            __sync_fetch_and_add(&page->waiting, 1);
            while (page->is_held) usleep(1000);
            __sync_fetch_and_sub(&page->waiting, 1);
        }
        if (fails(&page->failing_syncs)) return -1;
        __sync_fetch_and_add(&page->syncs, 1);
    }
    return real(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if (page && page->failing_writes > 0 && is_log(file) && fails(&page->failing_writes)) return -1;
    return real(file, bytes, count, offset);
}
"#;

/// The meaning of the page's numbers, in their order.
#[derive(Clone, Copy)]
enum Number {
    FailingSyncs,
    FailingWrites,
    Failures,
    IsHeld,
    Waiting,
    Syncs,
}

/// The disk of one server's log.
pub struct WatchedDisk(Preloaded);

impl WatchedDisk {
    /// Makes the disk. Without a C compiler it returns `None` and prints a line that says so.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Option<Self> {
        Preloaded::build(SOURCE, "MILLRACE_TEST_DISK", 4096).map(Self)
    }

    /// Puts a server's log on this disk.
    pub fn give(&self, options: &mut ServerOptions) {
        self.0.give(options);
    }

    /// Makes the next sync of a segment in use fail, and no other.
    pub fn fail_next_sync(&self) {
        self.set(Number::FailingSyncs, 1);
    }

    /// Makes the next write to a segment in use fail, and no other.
    pub fn fail_next_write(&self) {
        self.set(Number::FailingWrites, 1);
    }

    /// The number of writes and syncs that failed.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.number(Number::Failures)
    }

    /// Holds all syncs from now on.
    pub fn hold_syncs(&self) {
        self.set(Number::IsHeld, 1);
    }

    /// Lets syncs end again.
    pub fn release_syncs(&self) {
        self.set(Number::IsHeld, 0);
    }

    /// The number of syncs that are held.
    #[must_use]
    pub fn waiting_syncs(&self) -> u32 {
        self.number(Number::Waiting)
    }

    /// The number of syncs of segments in use, without those that failed.
    #[must_use]
    pub fn syncs(&self) -> u32 {
        self.number(Number::Syncs)
    }

    fn set(&self, number: Number, value: u32) {
        self.0.shared.write_all_at(&value.to_ne_bytes(), number as u64 * 4).expect("written");
    }

    fn number(&self, number: Number) -> u32 {
        let mut bytes = [0; 4];
        self.0.shared.read_exact_at(&mut bytes, number as u64 * 4).expect("read");
        u32::from_ne_bytes(bytes)
    }
}
