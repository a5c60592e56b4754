//! State may exceed memory. The rest stays on disk, is read back as it was written, and survives a crash.
//! `MILLRACE_TEST_STATE_MIB` is the amount of state (1 GiB in a normal run).

use std::thread::scope;

use millrace_tests::{Server, ServerOptions, TestApp, number_from_env, wait_until};

const MEMORY_MIB: u64 = 64;

/// The memory that may come on top of the budget for entities, however large the state. It holds code, both cores'
/// JavaScript heaps, the checkpoint's buffers and merges, the log's batches, and what the allocator rounds up. Half
/// of the state is of the kind that merges once kept in memory.
const REST_MIB: u64 = 160;

/// Fields of one entity, and bytes of each: 256 KiB an entity. Half of the fields repeat the same few bytes, the
/// others do not compress.
const SOURCE: &str = r#"
import { service, query } from "millrace";
const FIELDS = 64, SIZE = 4096;
let noise = "", seed = 1;
while (noise.length < 2 * SIZE) {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  noise += String.fromCharCode(48 + (seed >>> 16) % 75);
}
function value(key: string, n: number): string {
  const name = `${key}/${n}.`;
  if (n % 2 === 0) return name.repeat(Math.ceil(SIZE / name.length)).slice(0, SIZE);
  const at = (Number(key.slice(1)) * 61 + n * 7) % (SIZE - name.length);
  return name + noise.slice(at, at + SIZE - name.length);
}
export default service({
  fill(ctx) {
    for (let n = 0; n < FIELDS; n += 1) ctx.set(`f${n}`, value(ctx.key, n));
  },
  /** How many fields are as they were written. */
  check: query((ctx) => ctx.entries({ limit: 1000 }).filter(([name, text]) => text === value(ctx.key, Number(name.slice(1)))).length),
  one: query((ctx, n: number) => ctx.get(`f${n}`) === value(ctx.key, n)),
});
"#;

fn check_all(server: &Server, entities: usize) {
    let mut connection = server.connect();
    for entity in 0..entities {
        let reply = connection.request("POST", &format!("/call/store/e{entity}/check"), &[], b"").expect("a reply");
        assert_eq!((reply.status, reply.text().as_str()), (200, "64"), "entity {entity}");
    }
}

/// A server with a budget of 64 MiB, filled with this number of entities of 256 KiB.
fn filled(entities: usize) -> Server {
    let options = ServerOptions::examples(&[]).with(&["--memory", &format!("{MEMORY_MIB}MiB")]);
    let server = Server::start(options);
    let app = TestApp::with("store.ts", SOURCE).and("millrace.toml", "[limits]\ncpu_ms = 2000\n");
    assert_eq!(app.deploy(&server, "store").status, 201);
    scope(|threads| {
        for part in 0..4 {
            let server = &server;
            threads.spawn(move || {
                let mut connection = server.connect();
                for entity in (part..entities).step_by(4) {
                    let path = format!("/call/store/e{entity}/fill");
                    wait_until("the entity is filled", || {
                        let reply = connection.request("POST", &path, &[], b"").expect("a reply");
                        // Writes may come faster than the checkpoint takes them. Then the server says so.
                        assert!([200, 503].contains(&reply.status), "{}", reply.text());
                        reply.status == 200
                    });
                }
            });
        }
    });
    server
}

fn peak_mib(server: &Server) -> u64 {
    server.status_kib("VmHWM") / 1024
}

#[test]
fn state_larger_than_memory_is_read_back_before_and_after_a_crash_and_memory_does_not_grow_with_it() {
    let state_mib = number_from_env("MILLRACE_TEST_STATE_MIB", 1024);
    let mut server = filled(state_mib * 4);
    let filled_mib = peak_mib(&server);
    check_all(&server, state_mib * 4);
    assert_eq!(server.value("store/e1/one", "5"), true);
    let read_mib = peak_mib(&server);
    println!(
        "{state_mib} MiB of state, {MEMORY_MIB} MiB for it: peak {filled_mib} MiB after filling, {read_mib} MiB after reading"
    );
    assert!(read_mib < MEMORY_MIB + REST_MIB, "the server took {read_mib} MiB for {state_mib} MiB of state");
    let resident = server.metric("millrace_resident_bytes");
    assert!(resident < (MEMORY_MIB << 20) as f64 * 1.25, "{resident} bytes of entities in memory");
    server.kill();
    server.restart();
    check_all(&server, state_mib * 4);
    let restarted_mib = peak_mib(&server);
    println!("peak {restarted_mib} MiB after a restart and reading");
    assert!(restarted_mib < MEMORY_MIB + REST_MIB, "the server took {restarted_mib} MiB after a restart");
}

const JOURNAL: &str = r#"
import { service, query, workflow } from "millrace";
export default service({
  fill: workflow(async (ctx, steps: number) => {
    for (let n = 0; n < steps; n += 1) await ctx.step("large", () => "x".repeat(4 * 1024 * 1024 - 10));
    await ctx.call("large", "end", "note");
  }),
  note(ctx) {
    ctx.set("isNoted", true);
  },
  isNoted: query((ctx) => ctx.get("isNoted") ?? false),
});
"#;

/// A workflow that always has its next result at once could log its whole journal before anything else goes on.
#[test]
fn a_workflow_with_a_large_journal_takes_neither_the_memory_nor_the_core() {
    const STEPS: u64 = 60;
    let mut options = ServerOptions::examples(&[]).with(&["--memory", &format!("{MEMORY_MIB}MiB")]);
    options.set("--cores", "1");
    let server = Server::start(options);
    assert_eq!(TestApp::with("large.ts", JOURNAL).deploy(&server, "large").status, 201);
    let _ = server.send("large/a/fill", &STEPS.to_string());
    let mut queries = 0;
    wait_until("the workflow has ended", || {
        queries += 1;
        server.value("large/end/isNoted", "null") == true
    });
    let peak = peak_mib(&server);
    println!("{STEPS} steps of 4 MiB: peak {peak} MiB, {queries} queries meanwhile");
    assert!(peak < MEMORY_MIB + 2 * REST_MIB, "the server took {peak} MiB");
}
