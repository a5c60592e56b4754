//! Workflows survive `kill -9` at random moments, restarts and deployments. Each step takes effect exactly once, and
//! time goes on while nobody serves. Compensations run in the reverse order.
//!
//! `MILLRACE_TEST_WORKFLOW_KILLS` is the number of kills under load (20 in a normal run).

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_tests::{
    Client, Load, MovedClock, Random, Server, ServerOptions, Shared, TestApp, assert_problem, millrace,
    number_from_env, wait_until,
};
use serde_json::{Value, json};

/// The entities that workflows call. They note what was done to them.
const WORK: &str = r#"
import { service, query, Abort } from "millrace";

export default service({
  /** Notes one step of one run; a second time would show. */
  done(ctx, { run, step, drawn }) {
    const field = `${run}/${step}`;
    ctx.set(field, [...(ctx.get(field) ?? []), drawn]);
    return step;
  },
  note(ctx, text) {
    ctx.set("notes", [...(ctx.get("notes") ?? []), text]);
  },
  notes: query((ctx) => ctx.get("notes") ?? []),
  refuse() {
    throw new Abort("refused");
  },
  poke(ctx, { id, payload, refuses }) {
    ctx.signal(id, "go", payload);
    if (refuses) throw new Abort("not poked");
  },
});
"#;

const STEPS: &str = r#"
import { service, workflow, Abort } from "millrace";

const ended = (error) => error.code;
let begun = 0;

export default service({
  /** Nine effects in nine entities, of every kind there is. */
  nine: workflow(async (ctx) => {
    const drawn = [ctx.random(), ctx.uuid()];
    const done = (step) => ctx.call("work", `w${step}`, "done", { run: ctx.id, step, drawn });
    await done(1);
    await done(2);
    await ctx.sleep(20);
    await Promise.all([done(3), done(4)]);
    const five = await ctx.step("five", () => [5, ctx.random()]);
    await done(five[0]);
    ctx.send("work", "w6", "done", { run: ctx.id, step: 6, drawn });
    await done(7);
    ctx.signal(ctx.id, "go", 8);
    const eight = await ctx.wait("go");
    await done(eight);
    await done(9);
    return [drawn, five];
  }),

  /** Does three things, each with what undoes it, and then ends as it is told. */
  undoes: workflow(async (ctx, how) => {
    for (const step of [1, 2, 3]) {
      ctx.compensate("work", ctx.key, "note", `undo ${step}`);
      await ctx.call("work", ctx.key, "note", `do ${step}`);
    }
    if (how === "refuse") await ctx.call("work", "other", "refuse");
    if (how === "wait") await ctx.wait("never");
    return "done";
  }),

  nineCalls: workflow(async (ctx, keys) => {
    for (const key of keys) await ctx.call("work", key, "note", ctx.id);
  }),

  sleeps: workflow(async (ctx, ms) => {
    const before = ctx.now();
    await ctx.sleep(ms);
    return ctx.now() - before;
  }),

  waits: workflow(async (ctx, { sleepMs, times, timeoutMs }) => {
    await ctx.sleep(sleepMs);
    const got = [];
    for (let time = 0; time < times; time += 1) got.push(await ctx.wait("go", { timeoutMs }).catch(ended));
    return got;
  }),

  nested: workflow(async (ctx) => {
    const got = await ctx.step("outer", async () => {
      await ctx.call("work", ctx.key, "note", "within");
      return "noted";
    });
    await ctx.wait("go");
    await ctx.call("work", ctx.key, "note", "behind");
    return got;
  }),

  takes: workflow(async (ctx) => {
    const taken = await ctx.wait("go");
    await ctx.call("work", ctx.key, "note", `took ${taken}`);
    return taken;
  }),

  twoMessages: workflow(async (ctx, [first, second]) => {
    ctx.send("work", first, "note", "first");
    ctx.send("work", second, "note", "second");
  }),

  /** Awaits nothing of what it starts. */
  starts: workflow(async (ctx) => {
    const note = (text) => ctx.call("work", ctx.key, "note", text);
    note("a").then(() => ctx.step("b", () => "b")).then(note).then(() => ctx.call("work", ctx.key, "refuse"));
    ctx.sleep(1e9).then(() => note("c"));
    return "returned";
  }),

  /** What no workflow may do: its way depends on how many have begun before it. */
  strays: workflow(async (ctx) => {
    begun += 1;
    await ctx.call("work", "strays", "note", begun > 1 ? "later" : "first");
    if (begun > 1) await ctx.sleep(1);
    await ctx.wait("go");
  }),
});
"#;

fn app() -> TestApp {
    TestApp::with("work.ts", WORK).and("steps.ts", STEPS)
}

fn start_with(options: ServerOptions) -> Server {
    let server = Server::start(options);
    let reply = app().deploy(&server, "steps");
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

fn start() -> Server {
    start_with(ServerOptions::examples(&[]))
}

fn notes(server: &Server, key: &str) -> Value {
    server.value(&format!("work/{key}/notes"), "")
}

fn signal(server: &Server, id: &str, payload: &Value) -> u16 {
    let body = json!({ "name": "go", "payload": payload }).to_string();
    server.request("POST", &format!("/invocations/{id}/signal"), &[], body.as_bytes()).status
}

fn cancel(server: &Server, id: &str) -> u16 {
    server.request("POST", &format!("/invocations/{id}/cancel"), &[], b"").status
}

/// Waits until an invocation is in the middle of a wait or sleep.
fn waits(server: &Server, id: &str) -> Value {
    let mut found = Value::Null;
    wait_until("the workflow waits", || {
        found = server.get(&format!("/invocations/{id}"));
        found["waits_for"].as_array().is_some_and(|what| !what.is_empty() && !what[0].to_string().contains("call"))
    });
    found
}

/// Starts workflows, each until that is answered. Returns the ids by kind.
fn start_workflows(number: u64, shared: &Shared) -> [Vec<String>; 2] {
    let mut client = Client::new(shared);
    let mut ids = [Vec::new(), Vec::new()];
    let mut round = 0u64;
    while !client.stops() {
        for (kind, (path, input)) in [("nine", "null"), ("undoes", "\"refuse\"")].into_iter().enumerate() {
            let header = format!("Idempotency-Key: {path}-{number}-{round}");
            let path = format!("/send/steps/k{number}-{round}/{path}");
            let reply = client.until_answered("POST", &path, &[&header], input);
            assert_eq!(reply.status, 202, "{}", reply.text());
            ids[kind].push(reply.json()["id"].as_str().expect("an id").to_owned());
            client.acknowledged();
        }
        round += 1;
        // Few enough to be judged in time.
        sleep(Duration::from_millis(15));
    }
    ids
}

fn check_nine(server: &Server, ids: &[&String]) {
    let states: Vec<Value> = (1..=9).map(|step| server.get(&format!("/state/work/w{step}"))).collect();
    for id in ids {
        let ended = server.get(&format!("/invocations/{id}"));
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let drawn = &ended["output"][0];
        for (index, state) in states.iter().enumerate() {
            let field = format!("{id}/{}", index + 1);
            assert_eq!(state[&field], json!([drawn]), "{field}: {ended}");
        }
    }
    for state in states {
        assert_eq!(state.as_object().expect("fields").len(), ids.len(), "runs that nobody started");
    }
}

#[test]
fn each_step_takes_effect_once_however_often_the_server_is_killed() {
    let mut server = start();
    let load = Load::start(&server, 4, start_workflows);
    let kills = number_from_env("MILLRACE_TEST_WORKFLOW_KILLS", 20) as u64;
    load.kill_at_random(&mut server, kills, 20, &mut Random::new(), |server, life| {
        server.options().set("--cores", ["2", "1", "3"][life as usize % 3]);
    });
    let told = load.finish();
    wait_until("all workflows have ended", || server.invocations("status=running&service=steps", 1000).is_empty());
    let of = |kind: usize| told.iter().flat_map(|ids| &ids[kind]).collect::<Vec<_>>();
    println!("{kills} kills, {} workflows of nine steps, {} undone", of(0).len(), of(1).len());
    let listed: BTreeSet<String> =
        server.invocations("service=steps", 1000).iter().map(|one| one["id"].as_str().expect("an id").into()).collect();
    assert_eq!(listed, told.iter().flatten().flatten().cloned().collect());
    wait_until("the last messages have arrived", || {
        server.get("/state/work/w6").as_object().is_some_and(|fields| fields.len() >= of(0).len())
    });
    check_nine(&server, &of(0));
    for (number, ids) in told.iter().enumerate() {
        for (round, id) in ids[1].iter().enumerate() {
            let ended = server.get(&format!("/invocations/{id}"));
            assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("aborted")), "{ended}");
            let expected = json!(["do 1", "do 2", "do 3", "undo 3", "undo 2", "undo 1"]);
            assert_eq!(notes(&server, &format!("k{number}-{round}")), expected, "{ended}");
        }
    }
    assert_eq!(server.metric("millrace_waiting_transactions"), 0.0);
}

#[test]
fn the_journal_tells_what_was_done_in_order() {
    let server = start();
    let ended = server.ended(&server.send("steps/k/nine", "null"));
    let journal = ended["journal"].as_array().expect("a journal");
    let kinds: Vec<_> = journal.iter().map(|step| step["kind"].as_str().expect("a kind")).collect();
    println!("{kinds:?}");
    let count = |kind: &str| kinds.iter().filter(|one| **one == kind).count();
    assert_eq!((count("call"), count("send"), count("signal")), (8, 1, 1));
    assert_eq!((count("step"), count("sleep"), count("wait")), (1, 1, 1));
    assert_eq!((journal[0]["name"].as_str(), &journal[0]["output"]), (Some("work/w1/done"), &json!(1)));
    let times: Vec<_> = journal.iter().map(|step| step["ended_ms"].as_u64().expect("a time")).collect();
    assert!(times.is_sorted() && times[0] >= ended["began_ms"].as_u64().expect("a time"), "{ended}");
    let operations: BTreeSet<_> = journal.iter().map(|step| step["operation"].as_u64().expect("a number")).collect();
    assert_eq!(operations, (1..=13).collect());
    assert_eq!((&ended["service"], &ended["key"], &ended["handler"]), (&json!("steps"), &json!("k"), &json!("nine")));
}

#[test]
fn sleeps_survive_restarts_and_end_at_their_time() {
    let mut server = start();
    let ids = [600, 1500].map(|ms| (ms, server.send(&format!("steps/s{ms}/sleeps"), &ms.to_string())));
    for (_, id) in &ids {
        waits(&server, id);
    }
    server.kill();
    // Time that passes while nobody serves: the shorter sleep ends in it.
    sleep(Duration::from_millis(800));
    server.restart();
    for (ms, id) in &ids {
        let ended = server.ended(id);
        let slept = ended["output"].as_u64().expect("a time");
        println!("a sleep of {ms} ms took {slept} ms");
        // One had ended when the server came back, one had not.
        assert!((*ms..ms + 10_000).contains(&slept), "{ended}");
    }
}

#[test]
fn a_sleep_of_a_year_ends_after_a_year() {
    let Some(mut clock) = MovedClock::new() else { return };
    let mut options = ServerOptions::examples(&[]);
    clock.give(&mut options);
    let mut server = start_with(options);
    let year = Duration::from_secs(365 * 24 * 3600);
    let id = server.send("steps/k/sleeps", &year.as_millis().to_string());
    waits(&server, &id);
    clock.forward(year - Duration::from_secs(60));
    server.kill();
    server.restart();
    // An end that comes too early has time to come.
    sleep(Duration::from_millis(200));
    assert_eq!(server.get(&format!("/invocations/{id}"))["status"], "running");
    clock.forward(Duration::from_secs(60));
    let slept = server.ended(&id)["output"].as_u64().expect("a time");
    assert!(u128::from(slept) >= year.as_millis(), "{slept}");
}

#[test]
fn one_that_is_to_begin_later_is_seen_signalled_and_cancelled_before() {
    let Some(mut clock) = MovedClock::new() else { return };
    let mut options = ServerOptions::examples(&[]);
    clock.give(&mut options);
    let mut server = start_with(options);
    let hour = Duration::from_secs(3600);
    let later = |key: &str| server.send(&format!("steps/{key}/takes?delay_ms={}", hour.as_millis()), "");
    let (kept, cancelled) = (later("kept"), later("cancelled"));
    let listed = |server: &Server, status: &str| {
        let found = server.invocations(&format!("status={status}"), 1);
        found.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(listed(&server, "pending"), BTreeSet::from([kept.clone(), cancelled.clone()]));
    assert_eq!(listed(&server, "running"), BTreeSet::new());
    let seen = server.get(&format!("/invocations/{kept}"));
    assert_eq!((&seen["status"], &seen["key"], &seen["began_ms"]), (&json!("pending"), &json!("kept"), &Value::Null));
    assert!(seen["due_ms"].as_u64().is_some(), "{seen}");
    assert_eq!((signal(&server, &kept, &json!(7)), cancel(&server, &cancelled)), (202, 202));
    server.kill();
    server.restart();
    assert!(server.metric("millrace_pending_workflows") >= 1.0, "counted as soon as it serves");
    assert_eq!(server.ended(&cancelled)["status"], "cancelled");
    assert_eq!(server.get(&format!("/invocations/{kept}"))["status"], "pending");
    clock.forward(hour);
    assert_eq!(server.ended(&kept)["output"], 7);
    assert_eq!(notes(&server, "kept"), json!(["took 7"]));
    assert_eq!(notes(&server, "cancelled"), json!([]), "it never began");
    assert_eq!(listed(&server, "cancelled"), BTreeSet::from([cancelled]));

    // An invocation that is not a workflow is told apart from a workflow that has yet to begin.
    let call = server.send("work/x/note?delay_ms=3600000", "1");
    assert_problem(&server.request("POST", &format!("/invocations/{call}/cancel"), &[], b""), 400, "bad-request");
}

#[test]
fn whoever_waits_for_an_end_hears_of_it_when_it_comes() {
    let server = start();
    let id = server.send("steps/k/takes", "");
    let path = format!("/invocations/{id}?wait_ms=60000");
    let (by_url, by_command) = std::thread::scope(|scope| {
        let by_url = scope.spawn(|| server.get(&path));
        let command = ["invocations", &id, "--wait", "--url", &server.url()].map(str::to_owned);
        let by_command = scope.spawn(move || millrace(&command.each_ref().map(String::as_str)));
        waits(&server, &id);
        assert!(!by_url.is_finished() && !by_command.is_finished());
        assert_eq!(signal(&server, &id, &json!(7)), 202);
        (by_url.join().expect("an answer"), by_command.join().expect("an answer"))
    });
    assert_eq!((&by_url["status"], &by_url["output"]), (&json!("succeeded"), &json!(7)));
    assert_eq!(by_command.code, Some(0), "{}", by_command.err);
    assert!(by_command.out.contains("succeeded"), "{}", by_command.out);
}

#[test]
fn a_workflow_whose_app_is_lost_is_listed_and_goes_on_when_it_is_deployed_again() {
    let mut server = start();
    let id = server.send("steps/k/takes", "");
    waits(&server, &id);
    server.kill();
    for folder in ["apps", "app-versions"] {
        std::fs::remove_dir_all(server.data().join(folder)).expect("removed");
    }
    assert!(server.restart_refuses().contains("steps"), "a lost file is missed");
    server.list_changed_files();
    server.restart();
    let listed = || server.invocations("status=running", 10);
    wait_until("it is listed", || listed().len() == 1);
    let seen = server.get(&format!("/invocations/{id}"));
    assert_eq!(seen["waits_for"], json!(["the deployment of steps/steps/takes"]), "{seen}");
    assert_eq!(signal(&server, &id, &json!(7)), 202);
    assert_eq!(app().deploy(&server, "steps").status, 201);
    assert_eq!(server.ended(&id)["output"], 7);
}

#[test]
fn signals_are_taken_once_and_in_order_before_the_wait_and_after_it() {
    let mut server = start();
    let input =
        |sleep_ms: u64, times: u64| json!({ "sleepMs": sleep_ms, "times": times, "timeoutMs": 2000 }).to_string();
    let after = server.send("steps/after/waits", &input(0, 3));
    let before = server.send("steps/before/waits", &input(1000, 3));
    waits(&server, &after);
    waits(&server, &before);
    assert_eq!(signal(&server, &before, &json!({ "n": 1 })), 202);
    server.kill();
    server.restart();
    waits(&server, &before);
    waits(&server, &after);
    assert_eq!(signal(&server, &before, &json!("two")), 202);
    let body = json!({ "name": "go", "payload": [1] }).to_string();
    for _ in 0..3 {
        let path = format!("/invocations/{after}/signal");
        let reply = server.request("POST", &path, &["Idempotency-Key: once"], body.as_bytes());
        assert_eq!(reply.status, 202, "{}", reply.text());
    }
    // A signal of another name is not taken, and a signal of a refused transaction is not sent.
    let other = br#"{"name":"gone","payload":0}"#;
    assert_eq!(server.request("POST", &format!("/invocations/{after}/signal"), &[], other).status, 202);
    let poke = |refuses: bool| json!({ "id": after, "payload": null, "refuses": refuses }).to_string();
    assert_eq!(server.call("work/poker/poke", &poke(true)).status, 409);
    assert_eq!(server.call("work/poker/poke", &poke(false)).status, 200);
    server.kill();
    server.restart();
    assert_eq!(server.ended(&after)["output"], json!([[1], null, "wait-limit"]));
    assert_eq!(server.ended(&before)["output"], json!([{ "n": 1 }, "two", "wait-limit"]));
    let late =
        |headers: &[&str]| server.request("POST", &format!("/invocations/{after}/signal"), headers, body.as_bytes());
    assert_problem(&late(&[]), 409, "workflow-ended");
    assert_eq!(late(&["Idempotency-Key: once"]).status, 202, "it was accepted when it came first");
    let unknown = "inv_0000000000000000deadffff";
    for what in ["signal", "cancel"] {
        let reply = server.request("POST", &format!("/invocations/{unknown}/{what}"), &[], &body.clone().into_bytes());
        assert_problem(&reply, 404, "unknown-invocation");
    }
}

#[test]
fn a_step_may_call_and_is_known_after_a_restart() {
    let mut server = start();
    let id = server.send("steps/nested/nested", "null");
    wait_until("the step has ended", || waits(&server, &id)["waits_for"] == json!(["wait go"]));
    server.kill();
    server.restart();
    assert_eq!(signal(&server, &id, &Value::Null), 202);
    let ended = server.ended(&id);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!("noted")), "{ended}");
    assert_eq!(notes(&server, "nested"), json!(["within", "behind"]));
}

#[test]
fn what_nobody_awaits_is_done_before_the_end() {
    let server = start();
    let ended = server.ended(&server.send("steps/k/starts", "null"));
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!("returned")), "{ended}");
    assert_eq!(notes(&server, "k"), json!(["a", "b"]));
    let journal = ended["journal"].as_array().expect("a journal");
    assert_eq!(journal.len(), 4, "{ended}");
    assert_eq!(journal[3]["error"]["code"], "aborted", "what fails is told there, and only there");
}

#[test]
fn signals_and_cancels_right_after_a_restart_count() {
    const ROUNDS: usize = 8;
    let mut server = start();
    let input = json!({ "sleepMs": 0, "times": 1, "timeoutMs": 600_000 }).to_string();
    let status = |server: &Server, id: &str| server.get(&format!("/invocations/{id}"))["status"].clone();
    let mut dropped = Vec::new();
    for round in 0..ROUNDS {
        // Most are on shards of their own, which hear of them for the first time.
        let start = |number| server.send(&format!("steps/k{round}-{number}/waits"), &input);
        let ids: Vec<String> = (0..12).map(start).collect();
        for id in &ids {
            waits(&server, id);
        }
        server.kill();
        server.restart();
        let mut connection = server.connect();
        for (number, id) in ids.iter().enumerate() {
            let is_signal = (round + number).is_multiple_of(2);
            let (what, body) = if is_signal { ("signal", r#"{"name":"go","payload":7}"#) } else { ("cancel", "") };
            let path = format!("/invocations/{id}/{what}");
            let reply = connection.request("POST", &path, &[], body.as_bytes()).expect("a reply");
            assert_eq!(reply.status, 202, "{}", reply.text());
        }
        // What was dropped waits for its signal for ten minutes.
        let deadline = Instant::now() + Duration::from_secs(20);
        let runs = |id: &String| status(&server, id) == "running";
        while ids.iter().any(runs) && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
        for (number, id) in ids.iter().enumerate().filter(|(_, id)| runs(id)) {
            dropped.push(if (round + number).is_multiple_of(2) { "signal" } else { "cancel" });
            assert_eq!(cancel(&server, id), 202);
        }
    }
    assert_eq!(dropped, [""; 0], "acknowledged, and dropped");
}

#[test]
fn a_cancelled_workflow_is_undone_last_first_and_ends_so() {
    let mut server = start();
    let done = json!(["do 1", "do 2", "do 3"]);
    let undone = json!(["do 1", "do 2", "do 3", "undo 3", "undo 2", "undo 1"]);
    let [first, second] = ["first", "second"].map(|key| server.send(&format!("steps/{key}/undoes"), "\"wait\""));
    for id in [&first, &second] {
        assert!(waits(&server, id)["waits_for"].to_string().contains("never"));
    }
    assert_eq!(notes(&server, "first"), done);
    assert_eq!(cancel(&server, &first), 202);
    let ended = server.ended(&first);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("cancelled"), &json!("cancelled")), "{ended}");
    assert_eq!(notes(&server, "first"), undone);
    // The wish is durable when it is answered.
    assert_eq!(cancel(&server, &second), 202);
    server.kill();
    server.restart();
    assert_eq!(server.ended(&second)["status"], "cancelled");
    assert_eq!(notes(&server, "second"), undone);
    // A workflow that has ended stays as it is.
    let third = server.send("steps/third/undoes", "null");
    assert_eq!(server.ended(&third)["output"], "done");
    assert_eq!(cancel(&server, &third), 202);
    assert_eq!(server.get(&format!("/invocations/{third}"))["status"], "succeeded");
    assert_eq!(notes(&server, "third"), done);
    assert_eq!(cancel(&server, &first), 202);
    assert_eq!(notes(&server, "first"), undone);
}

#[test]
fn both_messages_of_one_turn_arrive() {
    let server = start();
    for (key, [first, second]) in
        [("k", ["m1", "m2"]), ("k", ["{k}1", "{k}2"]), ("{k}", ["same", "same"]), ("far", ["{near}1", "{near}2"])]
    {
        let id = server.send(&format!("steps/{key}/twoMessages"), &json!([first, second]).to_string());
        let ended = server.ended(&id);
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let expected = if first == second {
            vec![(first, json!(["first", "second"]))]
        } else {
            vec![(first, json!(["first"])), (second, json!(["second"]))]
        };
        for (key, notes_of) in expected {
            wait_until(&format!("{key} has {notes_of} of {first} and {second}"), || notes(&server, key) == notes_of);
        }
    }
}

/// Version 2 goes another way, with other steps.
fn versioned(version: u64) -> TestApp {
    let source = format!(
        "import {{ service, workflow }} from 'millrace';
         export default service({{
           run: workflow(async (ctx) => {{
             for (let step = 0; step < {version}; step += 1) await ctx.call('work', ctx.key, 'note', `{version} began`);
             await ctx.wait('go');
             await ctx.call('work', ctx.key, 'note', '{version} ended');
             return {version};
           }}),
         }});"
    );
    TestApp::with("work.ts", WORK).and("run.ts", &source)
}

fn check_versions(server: &Server, old: &str, new: &str) {
    for (id, key, version, notes_of) in
        [(old, "old", 1, json!(["1 began", "1 ended"])), (new, "new", 2, json!(["2 began", "2 began", "2 ended"]))]
    {
        waits(server, id);
        assert_eq!(signal(server, id, &Value::Null), 202);
        let ended = server.ended(id);
        assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!(version)), "{ended}");
        assert_eq!(notes(server, key), notes_of);
    }
}

#[test]
fn a_workflow_ends_in_the_code_it_began_with_after_a_deployment() {
    let mut server = Server::start(ServerOptions::examples(&[]));
    assert_eq!(versioned(1).deploy(&server, "pinned").status, 201);
    let old = server.send("run/old/run", "null");
    waits(&server, &old);
    assert_eq!(versioned(2).deploy(&server, "pinned").status, 200);
    let new = server.send("run/new/run", "null");
    waits(&server, &new);
    server.kill();
    server.restart();
    check_versions(&server, &old, &new);
}

#[test]
fn a_workflow_ends_in_the_code_it_began_with_when_its_folder_has_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = folder.path().join("pinned");
    versioned(1).write(&app);
    let mut options = ServerOptions::examples(&[]);
    options.apps.push(app.clone());
    let mut server = Server::start(options);
    let old = server.send("run/old/run", "null");
    waits(&server, &old);
    server.kill();
    versioned(2).write(&app);
    server.restart();
    let new = server.send("run/new/run", "null");
    waits(&server, &new);
    assert!(server.stop(), "{}", server.errors());
    server.restart();
    check_versions(&server, &old, &new);
}

#[test]
fn a_workflow_that_strays_from_its_journal_fails_and_says_where() {
    let mut server = start();
    let first = server.send("steps/k/strays", "null");
    waits(&server, &first);
    let second = server.send("steps/k/strays", "null");
    // Its sleep is in the journal, and durable when the signal to its neighbour is.
    wait_until("it has slept", || waits(&server, &second)["waits_for"] == json!(["wait go"]));
    assert_eq!(signal(&server, &first, &Value::Null), 202);
    assert_eq!(server.ended(&first)["status"], "succeeded");
    server.kill();
    server.restart();
    // It is now the first workflow that begins, and it does not sleep.
    let ended = server.ended(&second);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("diverged")), "{ended}");
    let detail = ended["error"]["detail"].as_str().expect("a detail");
    println!("{detail}");
    assert!(detail.contains("sleep") && detail.contains("wait"), "{detail}");
    wait_until("it is told", || server.errors().contains("strayed from its journal"));
    let told = server.errors();
    let told = told.lines().find(|line| line.contains("strayed from its journal")).expect("it is told");
    assert!(told.contains("ERROR") && told.contains(&second) && told.contains("diverged"), "{told}");
    wait_until("it is counted", || ended_workflows(&server, "diverged") == 1);
}

fn ended_workflows(server: &Server, status: &str) -> u64 {
    let text = server.request("GET", "/metrics", &[], b"").text();
    let sample = format!("millrace_workflows_ended_total{{status=\"{status}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&sample)).and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[test]
fn how_workflows_end_is_counted_and_failures_are_told() {
    let server = start();
    let failed = server.send("steps/ann/undoes", "\"refuse\"");
    assert_eq!(server.ended(&failed)["status"], "failed");
    let [cancelled, pending] =
        ["steps/bob/undoes", "steps/bob/undoes?delay_ms=60000"].map(|to| server.send(to, "\"wait\""));
    waits(&server, &cancelled);
    assert_eq!((cancel(&server, &cancelled), cancel(&server, &pending)), (202, 202));
    assert_eq!(server.ended(&cancelled)["status"], "cancelled");
    let succeeded = server.send("steps/eve/sleeps", "1");
    assert_eq!(server.ended(&succeeded)["status"], "succeeded");
    wait_until("they are counted", || ended_workflows(&server, "succeeded") == 1);
    let counted = ["failed", "diverged", "cancelled"].map(|status| ended_workflows(&server, status));
    assert_eq!(counted, [1, 0, 2]);
    wait_until("it is told", || server.errors().contains("a workflow failed"));
    let told = server.errors();
    let told: Vec<&str> = told.lines().filter(|line| line.contains("a workflow failed")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in ["WARN", &failed, "steps", "undoes", "ann", "aborted: refused"] {
        assert!(told[0].contains(part), "{part} is not in {told:?}");
    }
}

#[test]
fn lists_have_filters_and_pages() {
    let server = start();
    let mut started = BTreeSet::new();
    for number in 0..25 {
        started.insert(server.send(&format!("steps/p{number}/undoes"), "\"wait\""));
    }
    let ended = server.send("steps/ended/undoes", "null");
    assert_eq!(server.ended(&ended)["status"], "succeeded");
    assert_eq!(versioned(1).deploy(&server, "pinned").status, 201);
    let other = server.request("POST", "/apps/pinned/send/run/k/run", &[], b"null");
    assert_eq!(other.status, 202, "{}", other.text());
    let ids = |filter: &str, page: usize| {
        let all = server.invocations(filter, page);
        let ids: BTreeSet<String> = all.iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect();
        assert_eq!(ids.len(), all.len(), "an invocation is on two pages");
        ids
    };
    for page in [1, 7, 26, 1000] {
        assert_eq!(ids("service=steps&status=running", page), started, "pages of {page}");
    }
    assert_eq!(ids("status=succeeded", 10), BTreeSet::from([ended.clone()]));
    assert_eq!(ids("app=pinned", 10).len(), 1);
    assert_eq!(ids("service=steps", 10).len(), 26);
    assert_eq!(ids("service=none", 10).len(), 0);
    let again = server.send("steps/p7/takes", "");
    assert_eq!(ids("key=p7&handler=takes", 10), BTreeSet::from([again.clone()]));
    for page in [1, 10] {
        let of_key = ids("key=p7", page);
        assert!(of_key.len() == 2 && of_key.contains(&again), "{of_key:?}");
    }
    assert_eq!(ids("key=p7&app=pinned", 10).len() + ids("key=nobody", 10).len() + ids("handler=nobody", 10).len(), 0);
    let shown = &server.invocations("status=succeeded", 1)[0];
    for absent in ["input", "output", "journal"] {
        assert!(shown.get(absent).is_none(), "{shown}");
    }
    for query in ["limit=0", "limit=1001", "status=happy", "servce=steps", "after=nothing", "limit=x"] {
        assert_problem(&server.request("GET", &format!("/invocations?{query}"), &[], b""), 400, "bad-request");
    }
}

/// Syncs of the log for one workflow of nine calls, on average.
fn syncs(cores: &str, key: &str, keys: &[String]) -> f64 {
    const RUNS: u32 = 10;
    let mut options = ServerOptions::examples(&[]);
    options.set("--cores", cores);
    let server = start_with(options);
    let input = json!(keys).to_string();
    let _ = server.ended(&server.send(&format!("steps/{key}/nineCalls"), &input));
    // What the first one left to do is done once nothing is synced for a while.
    let mut before = f64::NAN;
    wait_until("nothing is synced any more", || {
        let synced = server.metric("millrace_fsync_seconds_count");
        sleep(Duration::from_millis(300));
        before = server.metric("millrace_fsync_seconds_count");
        before == synced
    });
    for _ in 0..RUNS {
        let id = server.send(&format!("steps/{key}/nineCalls"), &input);
        let ended = server.ended(&id);
        assert_eq!(ended["status"], "succeeded", "{ended}");
    }
    (server.metric("millrace_fsync_seconds_count") - before) / f64::from(RUNS)
}

fn assert_few_syncs(place: &str, key_of: fn(u32) -> String) {
    let keys: Vec<String> = (0..9).map(key_of).collect();
    for cores in ["1", "2"] {
        let syncs = syncs(cores, "{k}", &keys);
        println!("a workflow of nine calls of entities on {place}, {cores} cores: {syncs:.1} syncs");
        assert!(syncs <= 1.5 * 9.0, "{syncs} syncs for nine steps on {place}");
    }
}

#[test]
fn a_workflow_of_nine_steps_on_its_shard_needs_few_syncs() {
    assert_few_syncs("its shard", |step| format!("{{k}}{step}"));
}

#[test]
fn a_workflow_of_nine_steps_on_many_shards_needs_few_syncs() {
    assert_few_syncs("many shards", |step| format!("w{step}"));
}

/// A node to which a workflow's app is deployed every hour keeps the versions that workflows run in, and nothing
/// else.
#[test]
fn versions_that_no_workflow_runs_in_are_forgotten_while_the_node_runs() {
    let source = |number: u32| {
        let text = format!(
            "import {{ service, workflow }} from 'millrace';
             export default service({{ run: workflow(async (ctx) => {{ await ctx.wait('go'); return {number}; }}) }});"
        );
        TestApp::with("long.ts", &text)
    };
    let mut server = Server::start(ServerOptions::examples(&[]));
    let version = |server: &Server| server.get("/apps")[0]["version"].as_str().expect("a version").to_owned();
    let kept = |server: &Server| {
        let files = std::fs::read_dir(server.data().join("app-versions")).expect("the folder");
        let mut names: Vec<String> =
            files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let files = |versions: &[&str]| {
        let mut names: Vec<String> = versions.iter().map(|version| format!("app-{version}.tar")).collect();
        names.sort();
        names
    };
    assert_eq!(source(1).deploy(&server, "app").status, 201);
    let first = version(&server);
    let id = server.send("long/k/run", "null");
    wait_until("it waits", || server.get(&format!("/invocations/{id}"))["status"] == "running");
    for number in 2..=5 {
        assert_eq!(source(number).deploy(&server, "app").status, 200);
    }
    let last = version(&server);
    assert_eq!(kept(&server).len(), 5, "what was replaced a moment ago may still begin workflows");
    wait_until("only two are kept", || kept(&server) == files(&[&first, &last]));
    server.kill();
    server.restart();
    assert_eq!(kept(&server), files(&[&first, &last]));
    assert!(signal(&server, &id, &json!(1)) < 300);
    assert_eq!(server.ended(&id)["output"], 1, "its own version");
    wait_until("only one is kept", || kept(&server) == files(&[&last]));
    assert_eq!(server.request("DELETE", "/apps/app", &[], b"").status, 204);
    wait_until("none is kept", || kept(&server).is_empty());
}
