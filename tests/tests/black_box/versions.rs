//! Versions of apps that were replaced: how long they stay in memory, and how much of them may.

use std::time::Instant;

use millrace_tests::{Server, ServerOptions, TestApp, assert_problem, wait_until};

/// What one version holds on each of the two cores.
const MODULE_MIB: usize = 40;

/// A module with an array of its own, and a workflow that waits until it is told to end.
fn version(number: usize) -> TestApp {
    let source = format!(
        r#"
import {{ service, query, workflow }} from "millrace";
const table = new Uint8Array({MODULE_MIB} << 20).fill({number});
export default service({{
  number: query(() => table[table.length - 1]),
  wait: workflow(async (ctx) => {{ await ctx.wait("end"); return table[0]; }}),
}});
"#
    );
    TestApp::with("table.ts", &source)
}

fn start() -> Server {
    Server::start(ServerOptions::examples(&[]))
}

#[test]
fn versions_that_nothing_runs_in_leave_memory_at_once() {
    let server = start();
    let began = Instant::now();
    let versions = 16;
    for number in 1..=versions {
        assert!(version(number).deploy(&server, "tables").status < 300);
        assert_eq!(server.call("table/a/number", "").text(), number.to_string());
    }
    // All of them would be 1,280 MiB; what replaces the limit of 10 s must not be time.
    let peak_mib = server.status_kib("VmHWM") / 1024;
    assert!(peak_mib < 700, "{peak_mib} MiB after {:?}", began.elapsed());
    wait_until("only the last version is in memory", || server.status_kib("VmRSS") / 1024 < 260);
}

#[test]
fn versions_that_workflows_are_pinned_to_are_bounded_in_memory() {
    let mut server = start();
    let mut started = Vec::new();
    let refused = loop {
        let reply = version(started.len() + 1).deploy(&server, "tables");
        // A busy machine's server may refuse one for a while.
        if reply.status >= 300 && !reply.text().contains("wait too long") {
            break reply;
        }
        if reply.status >= 300 {
            continue;
        }
        started.push(server.send("table/a/wait", ""));
        // A core that has no workflow of a version does without it.
        assert!(started.len() < 20, "one version after the other is kept");
    };
    assert_problem(&refused, 503, "overloaded");
    assert!(refused.header("retry-after").is_some() && refused.text().contains("pinned"), "{}", refused.text());
    assert_eq!(server.call("table/a/number", "").text(), started.len().to_string(), "what serves goes on");
    // A start loads each version where its workflow is, and not on both cores.
    let before_mib = server.status_kib("VmRSS") / 1024;
    server.kill();
    server.restart();
    let peak_mib = server.status_kib("VmHWM") / 1024;
    assert!(peak_mib < before_mib + 200, "{peak_mib} MiB after a restart, {before_mib} MiB before");
    assert_eq!(server.call("table/a/number", "").text(), started.len().to_string());
    for (number, id) in (1..).zip(&started) {
        let told = server.request("POST", &format!("/invocations/{id}/signal"), &[], br#"{"name":"end"}"#);
        assert!(told.status < 300, "{}", told.text());
        let ended = server.request("GET", &format!("/invocations/{id}?wait_ms=10000"), &[], b"");
        assert_eq!(ended.json()["output"], number, "it ended in the version it began in");
    }
    wait_until("there is room again", || version(99).deploy(&server, "tables").status < 300);
    assert_eq!(server.call("table/a/number", "").text(), "99");
}
