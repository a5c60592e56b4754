//! A workflow in a cluster keeps the version of its app, whichever node runs it.

use std::path::Path;
use std::time::Duration;

use millrace_tests::{Foreground, TestApp, wait_until};
use serde_json::Value;

use crate::cluster::Demo;

/// A workflow that waits until it is told how it ends, and says in which version it runs.
fn app(version: &str) -> TestApp {
    let source = format!(
        "import {{ service, workflow }} from \"millrace\";
export default service({{ wait: workflow(async (ctx) => {{ const said = await ctx.wait(\"end\"); return `{version} ${{said}}`; }}) }});
"
    );
    TestApp::with("door.ts", &source)
}

fn deploy(demo: &Demo, version: &str) {
    let tar = app(version).tar();
    wait_until("it is deployed", || {
        demo.request(1, "PUT", "/apps/doors", &[], &tar).is_some_and(|reply| reply.status < 300)
    });
}

fn start(demo: &Demo, key: &str) -> String {
    let reply = demo.request(1, "POST", &format!("/send/door/{key}/wait"), &[], b"null").expect("node 1 answers");
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.json()["id"].as_str().expect("an id").to_owned()
}

/// The node that owns the shard of an invocation.
fn owner(demo: &Demo, id: &str) -> u16 {
    let shard = usize::from_str_radix(&id["inv_".len()..][..4], 16).expect("a shard");
    let guidance = demo.guidance().expect("some node knows");
    guidance["shards"][shard]["owner"].as_u64().and_then(|owner| owner.try_into().ok()).expect("a node")
}

fn shown(demo: &Demo, node: u16, id: &str) -> Value {
    let reply = demo.request(node, "GET", &format!("/invocations/{id}"), &[], b"");
    reply.filter(|reply| reply.status == 200).map_or(Value::Null, |reply| reply.json())
}

/// Tells a workflow to end, and gives what it says.
fn end(demo: &Demo, node: u16, id: &str) -> Value {
    let (path, signal) = (format!("/invocations/{id}/signal"), br#"{"name":"end","payload":"you"}"#);
    wait_until("the signal is taken", || {
        demo.request(node, "POST", &path, &[], signal).is_some_and(|reply| reply.status == 202)
    });
    let mut ended = Value::Null;
    wait_until("the workflow ends", || {
        ended = shown(demo, node, id);
        ["succeeded", "failed", "cancelled"].iter().any(|status| ended["status"] == *status)
    });
    ended["output"].clone()
}

/// The versions of an app that are kept for workflows.
fn kept(demo: &Demo) -> usize {
    let guidance = demo.guidance().unwrap_or_default();
    guidance["kept"].as_array().map_or(0, Vec::len)
}

/// Kills all nodes at once, and starts them again.
fn restart(demo: &mut Demo, data: &Path) -> Vec<Foreground> {
    for node in 1..=3 {
        demo.kill(node);
    }
    assert!(data.exists());
    (1..=3).map(|node| demo.revive(node)).collect()
}

#[test]
fn a_workflow_keeps_its_version_when_another_node_goes_on_with_it() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let mut demo = Demo::start(&folder);
    deploy(&demo, "first");
    let (one, two) = (start(&demo, "a"), start(&demo, "a"));
    for id in [&one, &two] {
        wait_until("it has begun", || shown(&demo, 1, id)["status"] == "running");
    }
    deploy(&demo, "second");
    // The nodes that run nothing in the first version forget it by now, if nobody tells them to keep it.
    std::thread::sleep(Duration::from_secs(12));
    let lost = owner(&demo, &one);
    demo.kill(lost);
    wait_until("another node owns the shard", || owner(&demo, &one) != lost);
    let asked = owner(&demo, &one);
    assert_eq!(end(&demo, asked, &one), "first you");
    let _again = demo.revive(lost);
    wait_until("it is back", || demo.guidance().is_some_and(|all| all["nodes"][lost.to_string()]["is_alive"] == true));
    let _all = restart(&mut demo, &folder);
    wait_until("they serve", || shown(&demo, 1, &two)["status"] == "running");
    assert_eq!(kept(&demo), 1);
    assert_eq!(end(&demo, 1, &two), "first you");
    let third = start(&demo, "a");
    assert_eq!(end(&demo, 1, &third), "second you");
    wait_until("nobody needs the first version any more", || kept(&demo) == 0);
    let fourth = start(&demo, "a");
    wait_until("it has begun", || shown(&demo, 1, &fourth)["status"] == "running");
    let removed = demo.request(1, "DELETE", "/apps/doors", &[], b"").expect("it answers");
    assert_eq!((removed.status, kept(&demo)), (204, 1));
    let _all = restart(&mut demo, &folder);
    wait_until("they serve", || shown(&demo, 1, &fourth)["status"] == "running");
    assert_eq!(end(&demo, 1, &fourth), "second you");
    wait_until("nobody needs the second version any more", || kept(&demo) == 0);
}
