//! `millrace dev` prints each call with its time and result. It serves a changed app without a restart. It refuses a
//! broken app with its place, and the old version serves on.

use std::net::SocketAddr;
use std::process::Command;

use millrace_tests::{Connection, Foreground, Reply, binary, free_address, wait_until};
use tempfile::TempDir;

const SOURCE: &str = r#"import { service, query, Abort } from "millrace";

export default service({
  version: query(() => 1),
  add(ctx, n: number) {
    const value = (ctx.get("value") ?? 0) + n;
    ctx.set("value", value);
    return value;
  },
  refuse() {
    throw new Abort("not today");
  },
  fail() {
    throw new Error("a mistake");
  },
});
export const routes = { "GET /hello": () => "hello", "GET /gone": () => ({ status: 404 }) };
"#;

struct Dev {
    process: Foreground,
    address: SocketAddr,
    folder: TempDir,
}

impl Dev {
    fn begin(source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let address = free_address();
        let app = folder.path().join("greeter");
        std::fs::create_dir(&app).expect("made");
        std::fs::write(app.join("greeting.ts"), source).expect("written");
        let mut command = Command::new(binary());
        command.args(["dev", "--http", &address.to_string(), "--cores", "1", "--app"]).arg(app);
        command.arg("--data").arg(folder.path().join("data"));
        Self { process: Foreground::start(&mut command), address, folder }
    }

    fn start(source: &str) -> Self {
        let dev = Self::begin(source);
        dev.wait_until_it_serves();
        dev
    }

    fn wait_until_it_serves(&self) {
        wait_until("it serves", || self.ask("GET", "/healthz", "").is_some_and(|reply| reply.status == 200));
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Option<Reply> {
        Connection::open(self.address).and_then(|mut c| c.request(method, path, &[], body.as_bytes())).ok()
    }

    fn call(&self, handler: &str, input: &str) -> Reply {
        self.ask("POST", &format!("/call/greeting/k/{handler}"), input).expect("a reply")
    }

    fn version(&self) -> String {
        self.call("version", "null").text()
    }

    /// Puts a file into the app as editors do: nobody sees half of it.
    fn save(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, self.folder.path().join("greeter").join(name)).expect("renamed");
    }

    /// Waits for a printed line that holds this text, and returns it.
    fn prints(&self, text: &str) -> String {
        let find = || self.process.out().lines().find(|line| line.contains(text)).map(str::to_owned);
        wait_until(&format!("{text:?} is printed"), || find().is_some());
        find().expect("found")
    }
}

/// The milliseconds, the name and the result of a printed call.
fn parts(line: &str) -> (f64, &str, &str) {
    let (took, rest) = line.split_once(" ms  ").unwrap_or_else(|| panic!("no time: {line}"));
    let (name, outcome) = rest.split_once("  ").unwrap_or_else(|| panic!("no outcome: {line}"));
    (took.trim().parse().unwrap_or_else(|_| panic!("no number: {line}")), name, outcome)
}

#[test]
fn each_call_is_printed_with_its_time_and_outcome() {
    let mut dev = Dev::start(SOURCE);
    assert_eq!(dev.call("add", "5").text(), "5");
    assert_eq!(dev.call("refuse", "null").code(), "aborted");
    assert_eq!(dev.call("fail", "null").code(), "function-failed");
    assert_eq!(dev.ask("GET", "/greeting/hello", "").expect("a reply").text(), "hello");
    assert_eq!(dev.ask("GET", "/greeting/gone", "").expect("a reply").status, 404);
    for (name, outcome) in [
        ("greeting/k/add", "ok"),
        ("greeting/k/refuse", "aborted: not today"),
        ("greeting/k/fail", "function-failed: Error: a mistake (at greeting.ts:14:"),
        ("GET /greeting/hello", "200"),
        ("GET /greeting/gone", "404"),
    ] {
        let line = dev.prints(name);
        let (took_ms, printed, ended) = parts(&line);
        assert!(took_ms > 0.0 && took_ms < 60_000.0, "{line}");
        assert!(printed.ends_with(name), "{line}");
        assert!(if outcome.len() < 4 { ended == outcome } else { ended.starts_with(outcome) }, "{line}");
    }
    let calls = dev.process.out().lines().filter(|line| line.contains(" ms  ")).count();
    assert_eq!(calls, 5, "each once: {}", dev.process.out());
    dev.process.interrupt();
    assert!(dev.process.ended().success(), "{}", dev.process.err());
}

#[test]
fn a_changed_app_is_served_and_a_broken_one_is_refused_with_its_place() {
    let mut dev = Dev::start(SOURCE);
    assert_eq!(dev.version(), "1");
    assert_eq!(dev.call("add", "5").text(), "5");

    dev.save("greeting.ts", &SOURCE.replace("query(() => 1)", "query(() => 2)"));
    wait_until("the change is served", || dev.version() == "2");
    assert!(dev.prints("loaded greeter again").contains("version"));
    assert_eq!(dev.call("add", "1").text(), "6", "state stays");

    let broken = SOURCE.replace("query(() => 1)", "query(() => 3)").replace("refuse() {", "refuse( {");
    dev.save("greeting.ts", &broken);
    let line = dev.prints("greeter is not loaded, the old version goes on: ");
    assert!(line.contains(": greeting.ts:11:11: "), "{line}");
    assert_eq!(dev.version(), "2");

    dev.save("millrace.toml", "[limits]\ncpu_ms = 0\n");
    let line = dev.prints("millrace.toml:2:10: ");
    assert!(line.contains("greeter") && line.contains("cpu_ms"), "{line}");
    assert_eq!(dev.version(), "2");

    dev.save("millrace.toml", "");
    dev.save("greeting.ts", &SOURCE.replace("query(() => 1)", "query(() => 4)"));
    wait_until("the repaired app is served", || dev.version() == "4");
    assert_eq!(dev.call("add", "1").text(), "7");
    dev.process.interrupt();
    assert!(dev.process.ended().success(), "{}", dev.process.err());
}

#[test]
fn an_app_that_is_broken_at_the_start_is_waited_for() {
    let mut dev = Dev::begin(&SOURCE.replace("refuse() {", "refuse( {"));
    assert!(dev.prints("greeting.ts:11:11: ").contains("app greeter"));
    dev.save("millrace.toml", "[limits]\ncpu_ms = 0\n");
    dev.prints("millrace.toml:2:10: ");
    assert!(dev.process.is_running(), "{}", dev.process.err());
    assert!(dev.ask("GET", "/healthz", "").is_none(), "nothing is served");
    dev.save("millrace.toml", "");
    dev.save("greeting.ts", SOURCE);
    dev.wait_until_it_serves();
    assert_eq!(dev.version(), "1");
    dev.process.interrupt();
    assert!(dev.process.ended().success(), "{}", dev.process.err());

    let mut given_up = Dev::begin("export default 1;");
    given_up.prints("nothing is served yet");
    given_up.process.interrupt();
    assert!(given_up.process.ended().success(), "{}", given_up.process.err());
}
