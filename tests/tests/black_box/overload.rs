//! Promise 7: sheds. The server is offered three times what it can do. It does as much as at its peak, and answers
//! what it accepts in bounded time. It refuses the rest with 503 and `Retry-After`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use millrace_tests::{CpuUse, Server, ServerOptions, StopOnDrop, assert_problem, binary, machine, wait_until};
use serde_json::Value;

/// How long a request may wait for its core; set for each server.
const QUEUE_MS: f64 = 200.0;

const CORES: f64 = 2.0;

/// The work of one request: a spin of about 4 ms of CPU time.
const SPIN_MS: f64 = 4.0;

/// The time of an accepted request beside its wait, on CPUs of its own. It has three parts. The first is the round
/// before the server noticed the request. The second is the slice, and the request in it that began just before the
/// wait was over. The third is the request itself. Each part is on a machine that takes twice as long for a spin. The
/// rest is the load generator's, which wakes up beside threads that always run.
const SLACK_MS: f64 = 3.0 * (2.0 + 2.0 * SPIN_MS) + 20.0;

/// Pairs of peak and overload. The share of other processes changes meanwhile, so the median of the pairs decides.
const PAIRS: usize = 3;

/// After so many pairs the machine is not one to measure on.
const PAIRS_TRIED: usize = 4 * PAIRS;

/// Measures pairs until as many as are needed count. `pair` says whether its own does.
fn measure_pairs(mut pair: impl FnMut() -> bool) {
    let counting = (0..PAIRS_TRIED).filter(|_| pair()).take(PAIRS).count();
    assert!(counting == PAIRS, "other processes take another part of the machine with every measurement");
}

struct Measured {
    rate: f64,
    /// Requests that were to be sent; 0 in a closed loop.
    offered: f64,
    shed: f64,
    /// Replies that came when the time was over, to requests that waited then.
    late: f64,
    unanswered: f64,
    unsent: f64,
    errors: u64,
    p50_ms: f64,
    p99_ms: f64,
    duration_s: f64,
    /// The CPU time that the server got.
    cpu_s: f64,
    /// The factor by which its work took longer than on CPUs of its own.
    stretch: f64,
}

impl Measured {
    /// Right answers.
    fn answered(&self) -> f64 {
        self.rate * self.duration_s
    }

    /// Right answers for each second of CPU time that the server's cores got.
    fn per_cpu_second(&self) -> f64 {
        self.answered() / self.cpu_s
    }

    /// Right answers a second on cores of its own. Other processes may take less of the machine a moment later.
    fn capacity(&self) -> f64 {
        self.per_cpu_second() * CORES
    }

    /// The part of the time in which the server's cores had nothing to do.
    fn idle(&self) -> f64 {
        1.0 - self.cpu_s * self.stretch / (self.duration_s * CORES)
    }

    fn print(&self, what: &str) {
        println!(
            "{what:<14} {:>5.0}/s ({:.0} a CPU second, stretched {:.1} times)  p50 {:>6.1} ms  p99 {:>6.1} ms  offered {:.0}  \
             shed {:.0}  late {:.0}  unanswered {:.0}  unsent {:.0}  errors {}",
            self.rate,
            self.per_cpu_second(),
            self.stretch,
            self.p50_ms,
            self.p99_ms,
            self.offered,
            self.shed,
            self.late,
            self.unanswered,
            self.unsent,
            self.errors
        );
    }

    /// How long an accepted request may take. The clock bounds its wait, and CPU time bounds its work.
    fn bound_ms(&self) -> f64 {
        QUEUE_MS + SLACK_MS * self.stretch
    }

    /// Whether all offered requests were sent, and were far more than was done. Where other processes had more of the machine
    /// than at the peak, or less, that is not so. Then the measurement does not count.
    fn is_overload(&self) -> bool {
        let is_sent = self.unsent <= 0.03 * self.offered;
        let counts = is_sent && self.offered >= 2.0 * self.answered();
        if !counts {
            println!("not counted: others had more or less of the machine than at the peak");
        }
        counts
    }

    /// Every request was answered: those that were not done with 503. Anything else is an error.
    fn assert_answered(&self) {
        assert_eq!(self.errors, 0, "something else than the right reply and 503 came back");
        assert!(self.unanswered == 0.0, "{} requests never got a reply", self.unanswered);
        let replies = self.answered() + self.shed + self.late;
        assert!(replies >= 0.97 * self.offered, "{replies} of {} requests were answered", self.offered);
    }
}

/// Calls that take their time, of different keys, so that all cores have work.
fn load(server: &Server, json: &Path, arguments: &[&str]) -> Measured {
    let spin = SPIN_MS.to_string();
    let right = ["--body", &spin, "--expect-status", "200", "--expect-body", &spin];
    let often = ["--duration", "2s", "--warm-up", "500ms"];
    bench(server, json, "synthetic/k{{uniform:0:1000}}/spin", &[&right[..], &often, arguments].concat())
}

/// Runs `millrace bench http`, which counts latency from the moment when a request should have been sent.
fn bench(server: &Server, json: &Path, call: &str, arguments: &[&str]) -> Measured {
    let url = format!("{}/call/{call}", server.url());
    let earlier = server.cpu_use();
    let status = Command::new(binary())
        .args(["bench", "http", &url, "--allow-status", "503", "--quiet"])
        .args(["--server-pid", &server.pid().to_string()])
        .args(arguments)
        .arg("--json")
        .arg(json)
        .stdout(Stdio::null())
        .status()
        .expect("started");
    let text = std::fs::read(json).expect("a report");
    let report: Value = serde_json::from_slice(&text).expect("JSON");
    let errors = report["errors"].as_object().expect("counts").values().filter_map(Value::as_u64).sum();
    assert!(status.success() || errors > 0, "the load generator failed");
    let number = |value: &Value| value.as_f64().expect("a number");
    let duration_s = number(&report["duration_s"]);
    let cores = server.cpu_use().into_iter().zip(earlier).map(|(now, earlier)| now.since(earlier));
    Measured {
        rate: number(&report["rate"]),
        offered: report["rate_wanted"].as_f64().unwrap_or(0.0) * duration_s,
        shed: number(&report["shed"]),
        late: number(&report["late"]),
        unanswered: number(&report["unanswered"]),
        unsent: number(&report["unsent"]),
        errors,
        p50_ms: number(&report["latency"]["p50_us"]) / 1000.0,
        p99_ms: number(&report["latency"]["p99_us"]) / 1000.0,
        duration_s,
        cpu_s: (number(&report["server"]["user_us"]) + number(&report["server"]["system_us"])) / 1e6,
        stretch: cores.fold(CpuUse::default(), |all, one| all + one).stretch(),
    }
}

/// Clients that send requests until the test is over. Returns the number of 503 replies, each right, with
/// `Retry-After` and all.
fn count_503(server: &Server, is_over: &AtomicBool) -> u32 {
    let mut connection = server.connect();
    let mut refused = 0;
    let path = "/call/synthetic/watcher/echo";
    while !is_over.load(Ordering::Relaxed) {
        let reply = connection.request("POST", path, &[], b"1").expect("a reply, whatever the load");
        match reply.status {
            503 => {
                assert_problem(&reply, 503, "overloaded");
                refused += 1;
            }
            _ => assert_eq!((reply.status, reply.text().as_str()), (200, "1")),
        }
    }
    refused
}

/// The median.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn at_three_times_its_capacity_the_server_keeps_its_throughput_and_sheds_the_rest() {
    machine::alone();
    let server = Server::start(ServerOptions::examples(&["synthetic"]).with(&["--queue-ms", "200"]));
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("report.json");
    let (mut shares, mut idles, mut excesses_ms) = (Vec::new(), Vec::new(), Vec::new());
    measure_pairs(|| {
        let peak = load(&server, &json, &["--connections", "8"]);
        peak.print("peak");
        assert_eq!(peak.errors, 0);
        let rate = (3.0 * peak.rate).ceil().to_string();
        let is_over = AtomicBool::new(false);
        let (overloaded, refused) = scope(|threads| {
            let _over = StopOnDrop(&is_over);
            let watching = threads.spawn(|| count_503(&server, &is_over));
            let overloaded = load(&server, &json, &["--connections", "1024", "--rate", &rate]);
            is_over.store(true, Ordering::Relaxed);
            (overloaded, watching.join().expect("every reply was right"))
        });
        overloaded.print("3 x capacity");
        if !overloaded.is_overload() {
            return false;
        }
        overloaded.assert_answered();
        assert!(refused >= 5, "a client beside it saw {refused} replies 503");
        // The rate counts for each second of CPU time, because other processes may take more of it in one of the two
        // runs. And the server has to use the CPU time it gets.
        let share = overloaded.per_cpu_second() / peak.per_cpu_second();
        let (idle, bound_ms) = (overloaded.idle(), overloaded.bound_ms());
        println!(
            "throughput {:.2} of the peak, {share:.2} for its CPU time, idle {idle:.2}; p99 may be {bound_ms:.0} ms",
            overloaded.rate / peak.rate
        );
        shares.push(share);
        idles.push(idle);
        excesses_ms.push(overloaded.p99_ms - bound_ms);
        true
    });
    let share = median(&mut shares);
    assert!(share >= 0.9, "throughput fell to {share:.2} of the peak");
    let idle = median(&mut idles);
    assert!(idle <= 0.15, "the server was idle for {idle:.2} of the time");
    let excess_ms = median(&mut excesses_ms);
    assert!(excess_ms <= 0.0, "what was accepted took {excess_ms:.0} ms longer than it may");
    assert!(server.metric("millrace_requests_shed_total") > 0.0);
    assert_eq!(server.call("synthetic/after/echo", "1").status, 200);
}

/// The queue sets the bound, whatever is offered. It is not a multiple that grows with the load.
#[test]
fn the_more_is_offered_the_more_is_refused_and_the_rest_waits_no_longer() {
    machine::alone();
    let server = Server::start(ServerOptions::examples(&["synthetic"]).with(&["--queue-ms", "200"]));
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("report.json");
    let mut excesses_ms = Vec::new();
    measure_pairs(|| {
        let peak = load(&server, &json, &["--connections", "8"]);
        let rate = (8.0 * peak.capacity()).ceil().to_string();
        let overloaded = load(&server, &json, &["--connections", "2048", "--rate", &rate]);
        overloaded.print("8 x capacity");
        if !overloaded.is_overload() {
            return false;
        }
        overloaded.assert_answered();
        println!("p99 may be {:.0} ms", overloaded.bound_ms());
        excesses_ms.push(overloaded.p99_ms - overloaded.bound_ms());
        true
    });
    let excess_ms = median(&mut excesses_ms);
    assert!(excess_ms <= 0.0, "what was accepted took {excess_ms:.0} ms longer than it may");
}

/// More connections than a core reads ahead of. Most of their requests wait unread for their turn.
#[test]
fn what_waits_unread_is_served_in_its_turn_beside_what_waits_read() {
    machine::alone();
    let mut options = ServerOptions::examples(&["counter"]).with(&["--queue-ms", "60000"]);
    options.set("--cores", "1");
    let server = Server::start(options);
    let folder = tempfile::tempdir().expect("a folder");
    let (server, json) = (&server, &folder.path().join("report.json"));
    let (crowd, queued) = scope(|threads| {
        let arguments = ["--body", "1", "--connections", "2000", "--duration", "4s"];
        let crowd = threads.spawn(move || bench(server, json, "counter/{{uniform:1:100}}/add", &arguments));
        let mut queued = 0.0_f64;
        let mut others = 0;
        while !crowd.is_finished() {
            queued = queued.max(server.metric("millrace_queued_requests"));
            // Another part of the front reads this request, and it does not wait for its turn.
            let reply = server.request("POST", "/call/counter/other/add", &["upgrade: nothing"], b"1");
            assert_eq!(reply.status, 200, "{}", reply.text());
            others += 1;
        }
        assert_eq!(server.value("counter/other/value", "null"), others);
        (crowd.join().expect("measured"), queued)
    });
    crowd.print("2,000 connections");
    assert_eq!((crowd.errors, crowd.shed), (0, 0.0));
    assert!(queued > 1000.0, "only {queued} waited: the test does not test what it says");
    wait_until("nobody waits", || server.metric("millrace_queued_requests") == 0.0);
}
