//! Loading an app is the node's work, not a call's: a limit that the app's calls keep must not make
//! a deployment, or a restart with that app, depend on how busy the machine is.

use std::thread::scope;

use millrace_tests::{Server, ServerOptions, TestApp};

/// An app that a deployment accepted is there again after each restart.
#[test]
#[ignore = "bug: loading counts against limits.cpu_ms (func-js/src/loader.rs, load_service), so a node may refuse to start"]
fn an_app_with_a_tight_cpu_limit_loads_at_every_start() {
    let source = "import { service, query } from 'millrace'; export default service({ one: query(() => 1) });";
    let app = TestApp::with("tight.ts", source).and("millrace.toml", "[limits]\ncpu_ms = 1\n");
    let mut server = Server::start(ServerOptions::examples(&[]));
    let reply = app.deploy(&server, "tight");
    assert_eq!(reply.status, 201, "{}", reply.text());
    for _ in 0..5 {
        server.kill();
        server.restart();
        // Calls beside each other, so that the cores are busy.
        scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| assert_eq!(server.value("tight/k/one", ""), 1));
            }
        });
    }
}
