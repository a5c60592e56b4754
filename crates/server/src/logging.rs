//! Structured logs on standard error.
//!
//! A core must never wait for the reader of the log. So lines go through a bounded queue to a thread of
//! their own. The queue drops lines that do not fit, and reports their number once there is room again.
//!
//! Control characters are escaped in text that strangers can influence, such as a function's error. So one event
//! is one line, and no event steers the terminal that shows it.

use std::fmt::{Debug, Write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millrace_base::limits::{LOG_QUEUE_BYTES, LOG_QUEUE_LINES};
use tracing::field::Field;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::Failure;

/// Starts logging. Standard output stays free for what commands print. Lines still queued are
/// written when the guard is dropped.
///
/// # Errors
/// When the filter does not parse.
pub(crate) fn start(filter: &str, is_json: bool) -> Result<WorkerGuard, Failure> {
    if let Some(word) = unknown_level(filter) {
        let what = format!(
            "--log {filter}: {word:?} is no level: error, warn, info or debug; a module comes with its level, such as millrace_node=debug"
        );
        return Err(what.into());
    }
    let (shown, has_lost_trace) = without_trace(filter);
    // The LSM library logs its compactions at info.
    let shown = EnvFilter::try_new(format!("fjall=warn,lsm_tree=warn,{shown}"))
        .map_err(|error| format!("--log {filter}: {error}"))?;
    let waiting = Arc::new(Waiting::default());
    let (queue, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LOG_QUEUE_LINES)
        .finish(Reader { waiting: Arc::clone(&waiting), reader: io::stderr() });
    let writer = move || Queue { waiting: Arc::clone(&waiting), queue: queue.clone() };
    let is_terminal = std::io::IsTerminal::is_terminal(&io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(shown).with_ansi(is_terminal).with_writer(writer);
    let started = if is_json {
        builder.json().try_init()
    } else {
        builder.with_target(false).fmt_fields(debug_fn(write_field).delimited(" ")).try_init()
    };
    started.map_err(|error| format!("logging: {error}"))?;
    if has_lost_trace {
        tracing::warn!("this binary has no events of level trace: the log shows those of level debug and above");
    }
    Ok(guard)
}

/// A word that looks like a level and is none. The library takes it for the name of a module, and shows nothing else.
fn unknown_level(filter: &str) -> Option<&str> {
    let is_wrong = |word: &&str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && word.parse::<LevelFilter>().is_err()
    };
    filter.split(',').map(str::trim).find(is_wrong)
}

/// The filter with `debug` in place of `trace`, and whether it asked for `trace`. Trace is compiled out. The library
/// would print advice for developers about that, and not through the log.
fn without_trace(filter: &str) -> (String, bool) {
    // Fields of spans may contain commas, and words that look like a level.
    if filter.contains('{') {
        return (filter.to_owned(), false);
    }
    let mut has_lost_trace = false;
    let mut shown = |part: &str| {
        let (target, level) = part.rsplit_once('=').map_or(("", part), |(target, level)| (target, level));
        match level.trim().parse::<LevelFilter>() {
            Ok(LevelFilter::TRACE) => {
                has_lost_trace = true;
                if target.is_empty() { "debug".to_owned() } else { format!("{target}=debug") }
            }
            // A target without a level asks for all levels.
            Err(_) if target.is_empty() && !part.trim().is_empty() => format!("{part}=debug"),
            _ => part.to_owned(),
        }
    };
    let parts: Vec<String> = filter.split(',').map(&mut shown).collect();
    (parts.join(","), has_lost_trace)
}

/// The content of the queue. The library bounds only the number of lines, so long lines could fill gigabytes.
#[derive(Default)]
struct Waiting {
    lines: AtomicUsize,
    bytes: AtomicUsize,
    /// Dropped lines that were not reported yet.
    left_out: AtomicU64,
}

impl Waiting {
    /// Reserves room for one more line. Returns whether there was room.
    fn add(&self, bytes: usize) -> bool {
        let lines = self.lines.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = lines < LOG_QUEUE_LINES && before + bytes <= LOG_QUEUE_BYTES;
        if !has_room {
            self.remove(bytes);
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    fn remove(&self, bytes: usize) {
        self.lines.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The number of lines dropped since the last call; none while there is no room for the report.
    fn take_left_out(&self) -> u64 {
        let has_room = self.bytes.load(Ordering::Relaxed) < LOG_QUEUE_BYTES / 2
            && self.lines.load(Ordering::Relaxed) < LOG_QUEUE_LINES / 2;
        if has_room { self.left_out.swap(0, Ordering::Relaxed) } else { 0 }
    }
}

/// The sending end of the queue. It takes whole lines.
struct Queue {
    waiting: Arc<Waiting>,
    queue: NonBlocking,
}

impl io::Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.add(line.len()) { self.queue.write(line) } else { Ok(line.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The receiving end, on a thread that may wait for the reader.
struct Reader<W> {
    waiting: Arc<Waiting>,
    reader: W,
}

impl<W: io::Write> io::Write for Reader<W> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.reader.write(part)
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self.reader.write_all(line);
        // The line has left the queue, also if writing failed.
        self.waiting.remove(line.len());
        let lines = self.waiting.take_left_out();
        if lines > 0 {
            tracing::warn!(lines, "lines of the log were left out here: who reads standard error was too slow");
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.reader.flush()
    }
}

/// `name=value`; the message goes without its name.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    write!(Escaped(writer), "{value:?}")
}

/// Passes text on and escapes control characters, as `\n` or `\u{1b}`.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, control) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = control.chars();
            if let Some(character) = characters.next() {
                write!(self.0, "{}", character.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_is_debug_and_told_of() {
        for (filter, shown, has_lost_trace) in [
            ("info", "info", false),
            ("trace", "debug", true),
            ("TRACE", "debug", true),
            ("warn,millrace_node=trace,fjall=off", "warn,millrace_node=debug,fjall=off", true),
            ("millrace_node", "millrace_node=debug", false),
            ("debug,[span]=trace", "debug,[span]=debug", true),
            ("info,", "info,", false),
            ("", "", false),
            ("[span{level=trace}]", "[span{level=trace}]", false),
        ] {
            assert_eq!(without_trace(filter), (shown.to_owned(), has_lost_trace), "{filter}");
        }
    }

    #[test]
    fn a_mistyped_level_is_no_module() {
        for (filter, wrong) in [("wran", "wran"), ("info, inof", "inof"), ("fjall=off,1nfo", "1nfo")] {
            assert_eq!(unknown_level(filter), Some(wrong), "{filter}");
        }
        for filter in ["info", "OFF", "", "millrace_node", "warn,millrace_node::core=debug", "[span]=info", "info,"] {
            assert_eq!(unknown_level(filter), None, "{filter}");
        }
    }

    #[test]
    fn the_queue_is_bounded_in_bytes_and_in_lines_and_knows_what_it_left_out() {
        let waiting = Waiting::default();
        assert!(waiting.add(LOG_QUEUE_BYTES) && !waiting.add(1));
        assert_eq!(waiting.take_left_out(), 0, "there is no room to say so");
        waiting.remove(LOG_QUEUE_BYTES);
        assert_eq!((waiting.take_left_out(), waiting.take_left_out()), (1, 0));
        assert!((0..LOG_QUEUE_LINES).all(|_| waiting.add(1)));
        assert!(!waiting.add(1) && !waiting.add(1));
        (0..LOG_QUEUE_LINES).for_each(|_| waiting.remove(1));
        assert_eq!(waiting.take_left_out(), 2);
    }

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        let mut out = String::new();
        let text = "a=\"ä\"\n2026 ERROR forged\u{1b}[2J\r\0\u{85}😀";
        write!(Escaped(&mut Writer::new(&mut out)), "{text}").expect("a string takes all");
        assert_eq!(out, r#"a="ä"\n2026 ERROR forged\u{1b}[2J\r\u{0}\u{85}😀"#);
    }
}
