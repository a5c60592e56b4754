//! The loop of one thread: its connections, one epoll, no locks, no allocation per request.
//!
//! Times are nanoseconds since the run's base instant, which all threads share.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read};
use rustix::net::{SendFlags, send, sockopt};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::connection::{Connection, InFlight, Stage};
use super::expectation::Verdict;
use super::measure::{Failure, Period, Slice};
use super::plan::{BenchError, Plan};
use super::response::HeadCache;
use super::template::Scope;

const SECOND_NS: u64 = 1_000_000_000;

/// Interval between two checks for timeouts.
const TICK_NS: u64 = 100_000_000;

/// The pause before the next attempt of a failed connection.
const RETRY_NS: u64 = 100_000_000;

/// Concurrent connection attempts of one thread: below every usual listen backlog.
const CONNECTING: usize = 128;

/// Time limit of the first connections.
const FIRST_CONNECTIONS_NS: u64 = 15 * SECOND_NS;

/// Time limit of the last replies after the end of an open loop.
const DRAIN_NS: u64 = 2 * SECOND_NS;

const INPUT_BYTES: usize = 64 << 10;
const EVENTS: usize = 512;

/// The token of the timer; no connection has it.
const TIMER: u64 = u64::MAX;

/// Messages of a thread to the thread that started it.
pub(super) enum Message {
    /// The number of first connections, and the reason if some are missing.
    Ready { open: usize, error: Option<String> },
    /// The counts of a period.
    Observed(Period, Box<Slice>),
}

/// The times at which requests of an open loop are due.
struct Schedule {
    start: u64,
    interval_ns: f64,
    next: u64,
}

impl Schedule {
    fn intended(&self) -> u64 {
        self.start + (self.next as f64 * self.interval_ns) as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Running,
    Draining,
}

pub(super) struct Engine<'a> {
    plan: &'a Plan,
    thread: usize,
    base: Instant,
    epoll: OwnedFd,
    timer: OwnedFd,
    connections: Vec<Connection>,
    phase: Phase,
    open: usize,
    connecting: usize,
    /// Connections to make now, and connections to make at a later time.
    to_connect: VecDeque<u32>,
    to_retry: VecDeque<(u64, u32)>,
    /// Open loop: connections with room for a request, and their generation then.
    idle: VecDeque<(u32, u32)>,
    schedule: Option<Schedule>,
    scope: Scope,
    fixed: Option<&'a [u8]>,
    out: Vec<u8>,
    scratch: Vec<u8>,
    input: Vec<u8>,
    cache: HeadCache,
    slice: Slice,
}

impl<'a> Engine<'a> {
    pub(super) fn new(plan: &'a Plan, thread: usize, base: Instant) -> Result<Self, BenchError> {
        let failed = |error: Errno| BenchError::System(format!("cannot set up epoll: {error}"));
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET).map_err(failed)?;
        let count = plan.connections_of(thread);
        Ok(Self {
            plan,
            thread,
            base,
            epoll,
            timer,
            connections: (0..count).map(|_| Connection::new(plan)).collect(),
            phase: Phase::Connecting,
            open: 0,
            connecting: 0,
            to_connect: (0..count as u32).collect(),
            to_retry: VecDeque::new(),
            idle: VecDeque::new(),
            schedule: None,
            scope: Scope::new(plan.seed, thread, plan.threads),
            fixed: plan.request.fixed(),
            out: Vec::new(),
            scratch: Vec::new(),
            input: vec![0; INPUT_BYTES],
            cache: HeadCache::default(),
            slice: Slice::new(),
        })
    }

    fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// The whole run of this thread. `start` delivers the time at which all threads start.
    pub(super) fn run(mut self, start: &Receiver<u64>, tell: &Sender<Message>) {
        self.connect_all();
        let error = self.slice.first_error.take();
        self.slice = Slice::new();
        // The receiver may have given up. Then `start` is closed as well.
        tell.send(Message::Ready { open: self.open, error }).ok();
        let Ok(start) = start.recv() else { return };
        while self.now() < start {
            std::thread::sleep(Duration::from_nanos(start.saturating_sub(self.now())));
        }
        self.begin(start);
        let end = start + (self.plan.warm_up + self.plan.duration).as_nanos() as u64;
        self.run_periods(start, end, tell);
        if self.plan.rate.is_some() {
            self.drain(end);
        }
        drop(tell.send(Message::Observed(Period::Drain, Box::new(self.slice.take()))));
    }

    fn connect_all(&mut self) {
        let deadline = self.now() + FIRST_CONNECTIONS_NS;
        let wanted = self.connections.len();
        while self.open < wanted && self.now() < deadline {
            self.connect_due();
            let is_refused = self.open == 0 && self.connecting == 0 && self.slice.errors.connect > 0;
            if is_refused {
                return;
            }
            self.wait(TICK_NS / 10);
        }
    }

    fn begin(&mut self, start: u64) {
        self.phase = Phase::Running;
        if let Some(rate) = self.plan.rate {
            let interval_ns = self.plan.threads as f64 / rate * SECOND_NS as f64;
            // Threads take turns, so that all of them together send evenly.
            let offset = interval_ns / self.plan.threads as f64 * self.thread as f64;
            self.schedule = Some(Schedule { start: start + offset as u64, interval_ns, next: 0 });
        }
        let now = self.now();
        for index in 0..self.connections.len() {
            if self.connections[index].stage == Stage::Open {
                self.fill(index, self.plan.pipeline, now);
            }
        }
    }

    fn run_periods(&mut self, start: u64, end: u64, tell: &Sender<Message>) {
        let warm_up_end = start + self.plan.warm_up.as_nanos() as u64;
        let mut period = if warm_up_end > start { Period::WarmUp(0) } else { Period::Measured(0) };
        let mut next_tick = start + TICK_NS;
        loop {
            let boundary = match period {
                Period::WarmUp(second) => warm_up_end.min(start + (u64::from(second) + 1) * SECOND_NS),
                Period::Measured(second) => end.min(warm_up_end + (u64::from(second) + 1) * SECOND_NS),
                Period::Drain => return,
            };
            let now = self.now();
            if now >= boundary {
                let is_over = boundary >= end;
                drop(tell.send(Message::Observed(period, Box::new(self.slice.take()))));
                period = match period {
                    _ if is_over => return,
                    Period::WarmUp(_) if boundary >= warm_up_end => Period::Measured(0),
                    Period::WarmUp(second) => Period::WarmUp(second + 1),
                    Period::Measured(second) => Period::Measured(second + 1),
                    Period::Drain => return,
                };
                continue;
            }
            if now >= next_tick {
                self.tick(now);
                next_tick = now + TICK_NS;
            }
            self.connect_due();
            self.dispatch(now);
            self.wait(boundary.min(next_tick).saturating_sub(now));
        }
    }

    /// Waits for the last replies of an open loop and accounts for those that never came.
    fn drain(&mut self, end: u64) {
        // Requests that became due since the last check are still sent if a connection is free.
        self.dispatch(end);
        self.phase = Phase::Draining;
        let patience = DRAIN_NS.min(self.plan.timeout.as_nanos() as u64);
        while self.now() < end + patience && self.connections.iter().any(|each| !each.in_flight.is_empty()) {
            self.wait(TICK_NS / 10);
        }
        let now = self.now();
        // Waiting requests count with the time they have waited. Without them a stalled server would look fast.
        for flight in self.connections.iter().flat_map(|connection| &connection.in_flight) {
            self.slice.unanswered += 1;
            self.slice.latency.saturating_record(now.saturating_sub(flight.from));
        }
        if let Some(schedule) = &mut self.schedule {
            while schedule.intended() < end {
                self.slice.unsent += 1;
                self.slice.latency.saturating_record(now.saturating_sub(schedule.intended()));
                schedule.next += 1;
            }
        }
    }

    /// Finds requests and connections that took too long.
    fn tick(&mut self, now: u64) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            match connection.stage {
                Stage::Connecting { since } if now.saturating_sub(since) > timeout => {
                    self.slice.note(|| "a connection took too long to be made".to_owned());
                    self.fail(index, Failure::Connect);
                }
                Stage::Open
                    if connection.in_flight.front().is_some_and(|first| now - first.sent.min(now) > timeout) =>
                {
                    self.slice.note(|| "a request got no reply within the timeout".to_owned());
                    self.fail(index, Failure::Timeout);
                }
                _ => {}
            }
        }
    }

    fn connect_due(&mut self) {
        if self.to_connect.is_empty() && self.to_retry.is_empty() {
            return;
        }
        let now = self.now();
        while let Some(&(time, index)) = self.to_retry.front() {
            if time > now {
                break;
            }
            self.to_retry.pop_front();
            self.to_connect.push_back(index);
        }
        while self.connecting < CONNECTING {
            let Some(index) = self.to_connect.pop_front() else { return };
            let opened = self.connections[index as usize].open(index, &self.epoll, &self.plan.target, now);
            match opened {
                Ok(()) => self.connecting += 1,
                Err(error) => {
                    self.slice.note(|| format!("cannot connect: {error}"));
                    self.slice.fail(Failure::Connect, 1);
                    self.to_retry.push_back((now + RETRY_NS, index));
                }
            }
        }
    }

    /// Waits for events and handles them: at most `limit_ns`, or until a request is due.
    fn wait(&mut self, limit_ns: u64) {
        let mut limit_ns = limit_ns;
        if let (Some(schedule), Phase::Running, false) = (&self.schedule, self.phase, self.idle.is_empty()) {
            let gap = schedule.intended().saturating_sub(self.now());
            if gap < limit_ns {
                // The timer wakes to the microsecond; epoll's own timeout counts milliseconds.
                if gap > 0 {
                    arm(&self.timer, gap);
                }
                limit_ns = if gap == 0 { 0 } else { gap + 1_000_000 };
            }
        }
        if !self.to_connect.is_empty() && self.connecting < CONNECTING {
            limit_ns = 0;
        }
        let timeout = timespec(limit_ns);
        let mut space = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        // An interrupted wait is a wait without events.
        if let Ok((events, _)) = epoll::wait(&self.epoll, space.as_mut_slice(), Some(&timeout)) {
            for event in events {
                self.handle(*event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let (token, flags) = (event.data.u64(), event.flags);
        if token == TIMER {
            let now = self.now();
            self.dispatch(now);
            return;
        }
        let (index, generation) = ((token & 0xFFFF_FFFF) as usize, (token >> 32) as u32);
        let Some(connection) = self.connections.get(index) else { return };
        if connection.generation != generation {
            return;
        }
        match connection.stage {
            Stage::Closed => return,
            Stage::Connecting { .. } => {
                if !self.finish_connecting(index) {
                    return;
                }
            }
            Stage::Open => {}
        }
        if flags.contains(EventFlags::OUT) && !self.connections[index].unsent.is_empty() {
            self.flush(index);
        }
        let broken = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | broken) {
            self.receive(index, flags.intersects(broken));
        }
    }

    /// Whether the connection is open now.
    fn finish_connecting(&mut self, index: usize) -> bool {
        let Some(socket) = &self.connections[index].socket else { return false };
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => {
                self.slice.note(|| format!("cannot connect: {error}"));
                self.fail(index, Failure::Connect);
                return false;
            }
        }
        self.connections[index].stage = Stage::Open;
        self.connecting -= 1;
        self.open += 1;
        if self.phase == Phase::Running {
            let now = self.now();
            self.fill(index, self.plan.pipeline, now);
        }
        true
    }

    fn receive(&mut self, index: usize, is_broken: bool) {
        let mut input = std::mem::take(&mut self.input);
        while let Some(socket) = &self.connections[index].socket {
            match read(socket, input.as_mut_slice()) {
                Ok(0) => {
                    self.lost(index, Failure::Closed);
                    break;
                }
                Ok(length) => {
                    self.slice.bytes_read += length as u64;
                    if !self.process(index, &input[..length]) {
                        break;
                    }
                    // A short read has emptied the socket. Later bytes are a new event.
                    if length < input.len() && !is_broken {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.lost(index, Failure::Reset);
                    break;
                }
            }
        }
        self.input = input;
    }

    /// Handles the replies in `bytes`. Returns whether the connection is still open.
    fn process(&mut self, index: usize, bytes: &[u8]) -> bool {
        let now = self.now();
        let mut rest = bytes;
        let mut done = 0;
        while !rest.is_empty() {
            let connection = &mut self.connections[index];
            let Some(flight) = connection.in_flight.front().copied() else {
                self.slice.note(|| "the server sent more than was asked for".to_owned());
                self.fail(index, Failure::Malformed);
                return false;
            };
            match connection.codec.feed(rest, &mut self.cache) {
                Err(error) => {
                    self.slice.note(|| error.0.to_owned());
                    self.fail(index, Failure::Malformed);
                    return false;
                }
                Ok((_, None)) => break,
                Ok((used, Some(reply))) => {
                    let verdict = self.plan.expectation.judge(&reply);
                    if matches!(verdict, Verdict::WrongStatus | Verdict::WrongBody) {
                        let body = &reply.body[..reply.body.len().min(200)];
                        let status = reply.status;
                        let advice = self.plan.expectation.advice(verdict);
                        let text = || String::from_utf8_lossy(body);
                        self.slice.note(|| format!("unexpected reply {status}{advice}: {}", text()));
                    }
                    self.slice.record(verdict, reply.status, now.saturating_sub(flight.from));
                    rest = &rest[used..];
                    let keep_alive = reply.keep_alive;
                    connection.in_flight.pop_front();
                    if !keep_alive {
                        self.close_cleanly(index);
                        return false;
                    }
                    done += 1;
                }
            }
        }
        if done > 0 && self.phase == Phase::Running {
            self.fill(index, done, now);
        }
        self.connections[index].stage == Stage::Open
    }

    /// Sends the requests that a connection with room for `room` requests may send now.
    fn fill(&mut self, index: usize, room: usize, now: u64) {
        if self.schedule.is_none() {
            self.send(index, room, now, now);
            return;
        }
        for _ in 0..room {
            if self.connections[index].stage != Stage::Open {
                return;
            }
            match self.take_due(now) {
                Some(intended) => self.send(index, 1, intended, now),
                None => {
                    let generation = self.connections[index].generation;
                    self.idle.push_back((index as u32, generation));
                }
            }
        }
    }

    /// Open loop: the intended time of the next request, if it has come.
    fn take_due(&mut self, now: u64) -> Option<u64> {
        let schedule = self.schedule.as_mut()?;
        let intended = schedule.intended();
        if intended > now {
            return None;
        }
        schedule.next += 1;
        Some(intended)
    }

    /// Open loop: sends due requests over connections that have room.
    fn dispatch(&mut self, now: u64) {
        if self.schedule.is_none() || self.phase != Phase::Running {
            return;
        }
        while let Some(&(index, generation)) = self.idle.front() {
            let connection = &self.connections[index as usize];
            if connection.generation != generation || connection.stage != Stage::Open {
                self.idle.pop_front();
                continue;
            }
            let Some(intended) = self.take_due(now) else { return };
            self.idle.pop_front();
            self.send(index as usize, 1, intended, now);
        }
    }

    /// Sends `count` requests in one write.
    fn send(&mut self, index: usize, count: usize, from: u64, now: u64) {
        for _ in 0..count {
            self.connections[index].in_flight.push_back(InFlight { from, sent: now });
        }
        if let (Some(fixed), 1) = (self.fixed, count) {
            self.transmit(index, fixed);
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        for _ in 0..count {
            self.scope.next_request();
            match self.fixed {
                Some(fixed) => out.extend_from_slice(fixed),
                None => self.plan.request.render(&mut self.scope, &mut self.scratch, &mut out),
            }
        }
        self.transmit(index, &out);
        self.out = out;
    }

    fn transmit(&mut self, index: usize, bytes: &[u8]) {
        let connection = &mut self.connections[index];
        self.slice.bytes_written += bytes.len() as u64;
        if !connection.unsent.is_empty() {
            connection.unsent.extend_from_slice(bytes);
            return;
        }
        let Some(socket) = &connection.socket else { return };
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == bytes.len() => {}
            Ok(sent) => connection.unsent.extend_from_slice(&bytes[sent..]),
            Err(Errno::AGAIN | Errno::INTR) => connection.unsent.extend_from_slice(bytes),
            Err(_) => self.lost(index, Failure::Reset),
        }
        // The socket took only a part, so it is full. An event follows when it has room.
    }

    fn flush(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        while let (Some(socket), false) = (&connection.socket, connection.unsent.is_empty()) {
            match send(socket, &connection.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(connection.unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.lost(index, Failure::Reset);
                    return;
                }
            }
        }
    }

    /// The server closed the connection. Only requests in flight fail.
    fn lost(&mut self, index: usize, failure: Failure) {
        let connection = &self.connections[index];
        if connection.in_flight.is_empty() && !connection.codec.is_inside_reply() {
            self.close_cleanly(index);
            return;
        }
        self.slice.note(|| match failure {
            Failure::Closed => "the server closed a connection instead of answering".to_owned(),
            _ => "a connection was reset".to_owned(),
        });
        self.fail(index, failure);
    }

    fn close_cleanly(&mut self, index: usize) {
        let lost = self.connections[index].in_flight.len() as u64;
        if lost > 0 {
            // Requests sent behind the one whose reply closed the connection.
            self.slice.fail(Failure::Closed, lost);
        }
        self.slice.reconnects += 1;
        self.connections[index].close(self.plan);
        self.open -= 1;
        if self.phase != Phase::Draining {
            self.to_connect.push_back(index as u32);
        }
    }

    fn fail(&mut self, index: usize, failure: Failure) {
        let stage = self.connections[index].stage;
        let lost = self.connections[index].close(self.plan);
        self.slice.fail(failure, lost);
        let now = self.now();
        match stage {
            Stage::Open => self.open -= 1,
            Stage::Connecting { .. } => self.connecting -= 1,
            Stage::Closed => return,
        }
        match failure {
            _ if self.phase == Phase::Draining => {}
            Failure::Connect => self.to_retry.push_back((now + RETRY_NS, index as u32)),
            _ => self.to_connect.push_back(index as u32),
        }
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / SECOND_NS) as i64, tv_nsec: (nanoseconds % SECOND_NS) as i64 }
}

fn arm(timer: &OwnedFd, gap_ns: u64) {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Itimerspec { it_interval: zero, it_value: timespec(gap_ns) };
    // If it fails, epoll's own timeout still wakes, a little later.
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &value).ok();
}
