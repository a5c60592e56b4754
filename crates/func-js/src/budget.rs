//! Ends a turn that uses too much CPU time, stack or memory.
//!
//! QuickJS asks its interrupt handler after a number of *polls* (each function call and each loop
//! iteration is one): 10,000, which it fixes when compiled. That is far too seldom. Ten thousand
//! calls of a built-in function that works through megabytes take minutes. Endless recursion passes the stack limit
//! long before the handler gets to look. Worse, when QuickJS itself finds the stack used up at an unlucky place of an
//! `async` function, it aborts the process. So the counter is set here, before each turn and at each look, to a number
//! of polls that took about [`PACE_NS`] so far. The counter is a field of a structure that the C interface hides;
//! [`find_counter`] finds it by watching which number in that structure goes down with each call, and no service is
//! loaded if that fails. A QuickJS that keeps the counter elsewhere is therefore noticed by the first test.
//!
//! A breach ends the activation for good: the handler answers "interrupt" from then on, and QuickJS's
//! interruption cannot be caught by user code.

use std::cell::Cell;
use std::ptr::NonNull;

use millrace_base::{Error, ErrorCode};

use crate::heap::Heap;
use crate::{Clocks, js};

/// Polls before the first look of a turn: more than a short handler makes.
const FIRST_POLLS: i32 = 16;

/// Polls between looks at most. 64 calls deep are some 32 KiB of stack, a quarter of
/// [`STACK_RESERVE_BYTES`].
const MOST_POLLS: i32 = 64;

/// Polls after a breach while a module loads, until the next is interrupted as well. QuickJS rejects the module's promise
/// by a call, which polls: were it interrupted, nobody would learn where the module was.
const REJECTING_POLLS: i32 = 8;

/// The time between two looks that the number of polls is steered to.
const PACE_NS: u64 = 20_000;

/// Stack beyond the app's limit that QuickJS itself may still use. The look ends an activation that passed the
/// app's limit; QuickJS's own check, at the end of this reserve, should never be the first.
pub(crate) const STACK_RESERVE_BYTES: usize = 128 << 10;

/// A turn that took longer is told by the CPU time of its thread, not by the time that passed: the thread may have been
/// preempted, for longer than any limit where a container's share of a CPU is used up. Reading a thread's CPU clock is
/// a system call. So before turns the clock is read at most once in this time, and a turn may be told as much too long.
const MEASURE_AFTER_NS: u64 = 1_000_000;

/// As [`MEASURE_AFTER_NS`], for what a turn that has ended is told to have used: a transaction may have thousands of turns,
/// and what others used beside them would add up.
const MEASURE_ENDED_AFTER_NS: u64 = 100_000;

/// Which limit an activation broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    Cpu,
    Stack,
    Memory,
    /// A host function panicked; the panic goes on when the turn ends.
    Panic,
}

/// What one turn may use and has used.
pub(crate) struct Budget {
    clocks: Clocks,
    counter: Cell<NonNull<i32>>,
    stack_bytes: usize,
    polls: Cell<i32>,
    last_look_ns: Cell<u64>,
    started_ns: Cell<u64>,
    deadline_ns: Cell<u64>,
    allowed_ns: Cell<u64>,
    /// When the thread's CPU time was read last before the turn, and what it was then.
    reference_ns: Cell<u64>,
    reference_cpu_ns: Cell<u64>,
    /// What the turn used, once it has ended.
    spent_ns: Cell<u64>,
    lowest_stack: Cell<usize>,
    breach: Cell<Option<Breach>>,
    /// Once only: code that makes promises in a loop would go on for ever otherwise.
    lets_reject: Cell<bool>,
}

impl Budget {
    pub(crate) fn new(clocks: Clocks, counter: NonNull<i32>, stack_bytes: usize) -> Self {
        Self {
            clocks,
            counter: Cell::new(counter),
            stack_bytes,
            polls: Cell::new(FIRST_POLLS),
            last_look_ns: Cell::new(0),
            started_ns: Cell::new(0),
            deadline_ns: Cell::new(0),
            allowed_ns: Cell::new(0),
            reference_ns: Cell::new(0),
            reference_cpu_ns: Cell::new(0),
            spent_ns: Cell::new(0),
            lowest_stack: Cell::new(0),
            breach: Cell::new(None),
            lets_reject: Cell::new(false),
        }
    }

    /// Begins a turn that may use `allowed_ns` of CPU time.
    #[inline]
    pub(crate) fn begin(&self, allowed_ns: u64) {
        let now = (self.clocks.monotonic_ns)();
        self.started_ns.set(now);
        self.last_look_ns.set(now);
        self.deadline_ns.set(now.saturating_add(allowed_ns));
        self.allowed_ns.set(allowed_ns);
        if now.saturating_sub(self.reference_ns.get()) >= MEASURE_AFTER_NS {
            self.reference_ns.set(now);
            self.reference_cpu_ns.set((self.clocks.thread_cpu_ns)());
        }
        self.breach.set(None);
        self.lowest_stack.set(stack_pointer().saturating_sub(self.stack_bytes));
        self.set_polls(FIRST_POLLS);
    }

    /// As [`Budget::begin`], for the loading of a module.
    pub(crate) fn begin_loading(&self, allowed_ns: u64) {
        self.begin(allowed_ns);
        self.lets_reject.set(true);
    }

    /// From now on an interrupted activation gets no further.
    pub(crate) fn end_loading(&self) {
        self.lets_reject.set(false);
    }

    /// What the turn may use of CPU time.
    pub(crate) fn allowed_ms(&self) -> u64 {
        self.allowed_ns.get() / 1_000_000
    }

    /// What broke a limit in this turn.
    #[inline]
    pub(crate) fn breach(&self) -> Option<Breach> {
        self.breach.get()
    }

    pub(crate) fn set_breach(&self, breach: Breach) {
        if self.breach.get().is_none() {
            self.breach.set(Some(breach));
        }
        self.set_polls(1);
    }

    /// The interrupt handler: whether the turn must end.
    pub(crate) fn look(&self, heap: &Heap, collect_garbage: impl FnOnce()) -> bool {
        if self.breach.get().is_none() {
            if stack_pointer() < self.lowest_stack.get() {
                self.set_breach(Breach::Stack);
            } else if heap.is_over() {
                collect_garbage();
                if heap.recheck() {
                    self.set_breach(Breach::Memory);
                }
            }
            if self.breach.get().is_none() {
                self.look_at_time();
            }
        }
        if self.breach.get().is_some() {
            self.set_polls(if self.lets_reject.take() { REJECTING_POLLS } else { 1 });
        }
        self.breach.get().is_some()
    }

    fn look_at_time(&self) {
        let now = (self.clocks.monotonic_ns)();
        let since = now.saturating_sub(self.last_look_ns.replace(now));
        let polls = self.polls.get();
        self.set_polls(match since {
            _ if since > 4 * PACE_NS => (polls / 8).max(1),
            _ if since > PACE_NS => (polls / 2).max(1),
            _ => (polls * 2).min(MOST_POLLS),
        });
        if now >= self.deadline_ns.get() {
            let used = self.used_ns(now);
            if used >= self.allowed_ns.get() {
                self.set_breach(Breach::Cpu);
            } else {
                self.deadline_ns.set(now + (self.allowed_ns.get() - used));
            }
        }
    }

    /// CPU time of the turn so far, at most [`MEASURE_AFTER_NS`] too long.
    fn used_ns(&self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.started_ns.get());
        if elapsed <= MEASURE_AFTER_NS {
            return elapsed;
        }
        elapsed.min((self.clocks.thread_cpu_ns)().saturating_sub(self.reference_cpu_ns.get()))
    }

    /// The last look of a turn whose activation has ended or waits. A built-in function that works through megabytes is
    /// not interrupted; what it has used up is found here at the latest.
    #[inline]
    pub(crate) fn end(&self) {
        if self.turn_ns() >= self.allowed_ns.get() {
            self.set_breach(Breach::Cpu);
        }
    }

    /// What the turn has used, measured now.
    #[inline]
    fn turn_ns(&self) -> u64 {
        let now = (self.clocks.monotonic_ns)();
        let elapsed_ns = now.saturating_sub(self.started_ns.get());
        let spent_ns =
            if elapsed_ns <= MEASURE_ENDED_AFTER_NS { elapsed_ns } else { self.measured_ns(now, elapsed_ns) };
        self.spent_ns.set(spent_ns);
        spent_ns
    }

    /// What the last turn used.
    #[inline]
    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent_ns.get()
    }

    /// CPU time of a turn that has ended. The next one counts from here.
    #[cold]
    fn measured_ns(&self, now: u64, elapsed_ns: u64) -> u64 {
        let cpu_ns = (self.clocks.thread_cpu_ns)();
        self.reference_ns.set(now);
        elapsed_ns.min(cpu_ns.saturating_sub(self.reference_cpu_ns.replace(cpu_ns)))
    }

    #[inline]
    fn set_polls(&self, polls: i32) {
        self.polls.set(polls);
        // SAFETY: the counter lies in the context, which lives as long as its isolate, whose part
        // this budget is; QuickJS reads and writes it on this thread only.
        unsafe { self.counter.get().write(polls) };
    }
}

impl Breach {
    /// What the caller is told.
    pub(crate) fn error(self, limits: &millrace_func::Limits) -> Error {
        let (code, message) = match self {
            Breach::Cpu => {
                (ErrorCode::CpuLimit, format!("used more than {} ms of CPU time, with what it called", limits.cpu_ms))
            }
            Breach::Stack => {
                (ErrorCode::StackLimit, format!("calls nest too deeply for {} KiB of stack", limits.stack_bytes >> 10))
            }
            Breach::Memory => (
                ErrorCode::MemoryLimit,
                format!("the service used more than {} KiB of memory", limits.memory_bytes >> 10),
            ),
            Breach::Panic => (ErrorCode::Internal, "a host function failed".to_owned()),
        };
        Error::new(code, message)
    }
}

/// An address near the top of the native stack.
#[inline(always)]
fn stack_pointer() -> usize {
    let marker = 0u8;
    std::hint::black_box(&raw const marker) as usize
}

/// Finds the interrupt counter of a context: the one number in its structure that every call
/// lowers by one. `idle` is a function that does nothing.
pub(crate) fn find_counter(heap: &Heap, context: js::Context, idle: js::Raw) -> Option<NonNull<i32>> {
    const CALLS: usize = 7;
    let start = context.as_ptr().cast::<i32>();
    let words = heap.bytes_behind(start.cast()) / size_of::<i32>();
    // SAFETY: the words lie in the block that holds the context. They are read as C left them; no
    // reference to them is made.
    let read = || (0..words).map(|index| unsafe { start.add(index).read_volatile() }).collect::<Vec<i32>>();
    let before = read();
    for _ in 0..CALLS {
        context.call(idle, js::UNDEFINED, &mut []).ok()?;
    }
    let after = read();
    let mut lowered = (0..words).filter(|index| before[*index].wrapping_sub(after[*index]) == CALLS as i32);
    let index = lowered.next()?;
    if lowered.next().is_some() {
        return None;
    }
    // SAFETY: inside the block.
    NonNull::new(unsafe { start.add(index) })
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
        static CPU_NS: Cell<u64> = const { Cell::new(0) };
    }

    /// `cpu_ns` of the thread's own work, and then others have its CPU.
    fn pass(cpu_ns: u64, preempted_ns: u64) {
        NOW_NS.set(NOW_NS.get() + cpu_ns + preempted_ns);
        CPU_NS.set(CPU_NS.get() + cpu_ns);
    }

    #[test]
    fn a_turn_pays_for_its_own_work_and_not_for_having_been_preempted() {
        const ALLOWED_NS: u64 = 100_000_000;
        let mut counter = 0;
        let clocks = Clocks { monotonic_ns: || NOW_NS.get(), thread_cpu_ns: || CPU_NS.get() };
        let budget = Budget::new(clocks, NonNull::from(&mut counter), 1 << 20);
        let heap = Heap::new(1 << 20);
        let must_end = || budget.look(&heap, || {});
        // The first of a thread, and one that begins right after another.
        for _ in 0..2 {
            budget.begin(ALLOWED_NS);
            pass(10_000, 0);
            assert_eq!(budget.turn_ns(), 10_000);
            pass(10_000, 5 * ALLOWED_NS);
            assert!(!must_end(), "preempted before its first look");
            pass(10_000, 5 * ALLOWED_NS);
            assert!(!must_end() && budget.turn_ns() <= 2 * MEASURE_AFTER_NS);
            pass(ALLOWED_NS - 2 * MEASURE_AFTER_NS, 0);
            assert!(!must_end());
            pass(2 * MEASURE_AFTER_NS, 0);
            assert!(must_end());
            assert_eq!(budget.breach(), Some(Breach::Cpu));
            // One that never looks.
            budget.begin(ALLOWED_NS);
            pass(ALLOWED_NS / 2, 5 * ALLOWED_NS);
            budget.end();
            assert_eq!(budget.breach(), None);
            pass(ALLOWED_NS, 0);
            budget.end();
            assert_eq!(budget.breach(), Some(Breach::Cpu));
        }
    }
}
