//! Each limit of an app is the app's own. A value in its `millrace.toml` other than the default changes what its
//! functions may do. The guide's table lists the limits and the answer when each is passed.

use std::collections::BTreeMap;

use millrace_tests::{Outside, Reply, Server, ServerOptions, TestApp, assert_problem, repository};

const SOURCE: &str = r#"
import { service, type Context, type Request } from "millrace";

export const routes = {
  "POST /fetch": async (ctx: Context, request: Request) => ({ body: (await ctx.fetch(request.json())).text() }),
};

export default service({
  one: () => 1,
  spin(_ctx, n: number) {
    for (let i = 0; i < n; i += 1);
    return null;
  },
  allocate(_ctx, bytes: number) {
    new Uint8Array(bytes).fill(1);
    return null;
  },
  recurse(_ctx, depth: number) {
    const down = (left: number): number => (left === 0 ? 0 : 1 + down(left - 1));
    return down(depth);
  },
  async nest(ctx, depth: number) {
    return depth === 0 ? 0 : 1 + (await ctx.call("SERVICE", ctx.key, "nest", depth - 1));
  },
  length: (_ctx, text: string) => text.length,
  text: (_ctx, length: number) => "x".repeat(length),
  value(ctx, length: number) {
    ctx.set("value", "x".repeat(length));
  },
  writes(ctx, count: number) {
    for (let n = 0; n < count; n += 1) ctx.set(`field${n}`, n);
  },
  async calls(ctx, count: number) {
    await Promise.all(Array.from({ length: count }, () => ctx.call("SERVICE", ctx.key, "one", null)));
  },
  messages(ctx, count: number) {
    for (let n = 0; n < count; n += 1) ctx.send("SERVICE", `m${n}`, "one", null);
  },
});
"#;

/// So much CPU time that another limit is broken first, however slow the machine.
const ROOMY: &str = "cpu_ms = 30000";

/// A limit, a value of it, and a call. The call ends well under one of the value and the default, and not under the
/// other.
struct Row {
    key: &'static str,
    value: u64,
    /// A handler, or a route's path, and its input.
    call: (&'static str, String),
    code: &'static str,
    fails_by_default: bool,
}

fn rows(outside: &Outside) -> Vec<Row> {
    let more = |key, value, handler, input: u64, code| {
        let call = (handler, input.to_string());
        Row { key, value, call, code, fails_by_default: true }
    };
    let less = |key, value, handler, input: u64, code| Row {
        fails_by_default: false,
        ..more(key, value, handler, input, code)
    };
    let text = format!("\"{}\"", "x".repeat(200));
    vec![
        more("cpu_ms", 30_000, "spin", 30_000_000, "cpu-limit"),
        less("memory_bytes", 16 << 20, "allocate", 24 << 20, "memory-limit"),
        more("call_depth", 20, "nest", 18, "depth-limit"),
        Row { call: ("length", text), ..less("input_bytes", 100, "length", 0, "too-large") },
        less("output_bytes", 100, "text", 200, "size-limit"),
        more("value_bytes", 2 << 20, "value", 3 << 19, "size-limit"),
        more("writes_per_call", 20_000, "writes", 15_000, "operation-limit"),
        more("pending_operations", 2_000, "calls", 1_500, "operation-limit"),
        less("messages_per_call", 5, "messages", 6, "operation-limit"),
        Row {
            call: ("/fetch", format!("\"{}/slow/1500\"", outside.url())),
            ..less("wait_ms", 100, "", 0, "wait-limit")
        },
        // The depth that a byte of stack allows is not promised, so the stack limit has a test of its own below.
        more("stack_bytes", 1 << 20, "recurse", 0, "stack-limit"),
    ]
}

/// The limits of the guide's table, and the text that says what happens when each is passed.
fn documented() -> BTreeMap<String, String> {
    let guide = std::fs::read_to_string(repository().join("docs/guide/functions.md")).expect("the guide");
    let section = guide.split("\n## Limits\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the section");
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').collect();
        Some((cells[0].trim().trim_end_matches('`').to_owned(), cells[3].to_owned()))
    };
    section.lines().filter_map(row).collect()
}

/// Calls the handler or the route of an app's service.
fn ask(server: &Server, app: &str, key: &str, (call, input): &(&'static str, String)) -> Reply {
    if call.starts_with('/') {
        return server.request("POST", &format!("/{app}{call}"), &[], input.as_bytes());
    }
    server.call(&format!("{app}/{key}/{call}"), input)
}

/// A service with the name of its app, which has these limits.
fn deploy(server: &Server, name: &str, limits: &str) {
    let app = TestApp::with(&format!("{name}.ts"), &SOURCE.replace("SERVICE", name))
        .and("millrace.toml", &format!("[limits]\n{limits}\n"));
    let reply = app.deploy(server, name);
    assert_eq!(reply.status, 201, "{}", reply.text());
}

#[test]
fn every_limit_of_the_guide_is_the_apps_own() {
    let outside = Outside::start();
    let rows = rows(&outside);
    let documented = documented();
    let mut tested: Vec<&str> = rows.iter().map(|row| row.key).collect();
    tested.sort_unstable();
    assert_eq!(tested, documented.keys().map(String::as_str).collect::<Vec<_>>(), "those that the guide lists");

    let server = Server::start(ServerOptions::examples(&[]));
    let fetch = format!("[fetch]\nallow = [\"{}\"]", outside.url());
    deploy(&server, "plain", "");
    deploy(&server, "roomy", &format!("{ROOMY}\n{fetch}"));
    let mut wrong = Vec::new();
    for Row { key, value, call, code, fails_by_default } in rows {
        assert!(documented[key].contains(&format!("`{code}`")), "{key}: the guide tells of another code than {code}");
        if key == "stack_bytes" {
            continue;
        }
        let (rest, default) = if key == "cpu_ms" { ("", "plain") } else { (ROOMY, "roomy") };
        deploy(&server, key, &format!("{rest}\n{key} = {value}\n{fetch}"));
        let (passes, fails) = if fails_by_default { (key, default) } else { (default, key) };
        for (app, expected) in [(passes, ""), (fails, code)] {
            let reply = ask(&server, app, key, &call);
            if reply.code() != expected || (reply.status == 200) != expected.is_empty() {
                wrong.push(format!("{key}, {app}: {expected:?} expected, found {} {}", reply.status, reply.text()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn more_stack_is_deeper_recursion() {
    let server = Server::start(ServerOptions::examples(&[]));
    let deepest = |name: &str, limits: &str| {
        deploy(&server, name, &format!("{ROOMY}\n{limits}"));
        let (mut passes, mut fails) = (0u32, 1 << 16);
        while passes + 1 < fails {
            let depth = passes.midpoint(fails);
            let reply = server.call(&format!("{name}/k/recurse"), &depth.to_string());
            if reply.status == 200 {
                passes = depth;
            } else {
                assert_problem(&reply, 500, "stack-limit");
                fails = depth;
            }
        }
        passes
    };
    let small = deepest("small", "stack_bytes = 131072");
    let default = deepest("default", "");
    let large = deepest("large", "stack_bytes = 1048576");
    println!("calls within each other: {small} in 128 KiB, {default} in the default 512 KiB, {large} in 1 MiB");
    // Some of the stack is kept for other needs of a call, so the depth is not in proportion.
    assert!(small * 2 < default && default * 3 < large * 2, "{small}, {default}, {large}");
}
