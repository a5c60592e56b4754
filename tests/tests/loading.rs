//! Loading an app is the node's work, not a call's: `limits.cpu_ms` bounds handlers and routes. If it
//! bounded loading as well, a restart with a deployed app would depend on how busy the machine is.

use millrace_tests::{Server, ServerOptions, TestApp};

/// The top level makes a table, which takes some milliseconds; the calls take none.
const SOURCE: &str = "
import { service, query } from 'millrace';
const table = Array.from({ length: 60_000 }, (_, n) => Math.sqrt(n));
export default service({ root: query((_ctx, n: number) => table[n]) });
";

#[test]
fn an_app_with_a_tight_cpu_limit_loads_at_every_start() {
    let app = TestApp::with("tight.ts", SOURCE).and("millrace.toml", "[limits]\ncpu_ms = 2\n");
    let mut server = Server::start(ServerOptions::examples(&[]));
    let reply = app.deploy(&server, "tight");
    assert_eq!(reply.status, 201, "{}", reply.text());
    for _ in 0..3 {
        server.kill();
        server.restart();
        assert_eq!(server.value("tight/k/root", "1024"), 32);
    }
}
