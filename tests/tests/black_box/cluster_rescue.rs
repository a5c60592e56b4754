//! A majority of the nodes is lost for good: the cluster says so by name, and goes on with a node that has its data.

use std::time::Duration;

use millrace_tests::{Output, assert_problem, millrace, wait_until};

use crate::cluster::Demo;
use crate::cluster_elastic::join;

fn directory(demo: &Demo, node: u16) -> String {
    demo.folder.join(format!("n{node}")).display().to_string()
}

fn rescue(demo: &Demo, node: u16, arguments: &[&str]) -> Output {
    millrace(&[&["cluster", "rescue", &directory(demo, node)], arguments].concat())
}

fn status(demo: &Demo, node: u16) -> Output {
    millrace(&["cluster", "status", "--url", &format!("http://127.0.0.1:{}", demo.http_base + node - 1)])
}

fn readyz(demo: &Demo, node: u16) -> Option<(u16, String)> {
    demo.request(node, "GET", "/readyz", &[], b"").map(|reply| (reply.status, reply.code()))
}

fn add_to_all(demo: &Demo, numbers: std::ops::Range<usize>) {
    numbers.for_each(|number| (0..6).for_each(|counter| demo.add(counter, number)));
}

#[test]
fn two_of_three_nodes_are_lost_and_the_third_goes_on_and_gets_others() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    add_to_all(&demo, 0..5);
    let expected = demo.values(1).expect("they are read");
    let in_use = rescue(&demo, 1, &["--accept-loss"]);
    assert_eq!(in_use.code, Some(1), "{}", in_use.out);
    assert!(in_use.err.contains("is used by another"), "{}", in_use.err);
    for node in 1..=3 {
        demo.kill(node);
    }
    std::fs::remove_dir_all(demo.folder.join("n2")).expect("its disk is lost");
    let asked = rescue(&demo, 1, &[]);
    assert_eq!(asked.code, Some(1), "{}", asked.out);
    assert!(asked.err.contains("--accept-loss") && asked.err.contains("nothing was changed"), "{}", asked.err);
    let rescued = rescue(&demo, 1, &["--accept-loss"]);
    assert_eq!(rescued.code, Some(0), "{}", rescued.err);
    let positions = |output: &Output| output.out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(positions(&asked), positions(&rescued), "it keeps what it has said that it has");
    assert!(rescued.out.contains("5: ") && rescued.out.contains("guidance: "), "{}", rescued.out);
    let _first = demo.revive(1);
    wait_until("the node serves alone", || readyz(&demo, 1).is_some_and(|(status, _)| status == 200));
    wait_until("it has what was written", || demo.values(1).as_ref() == Some(&expected));
    // What comes back of the others is refused, though it has its certificate.
    let _third = demo.revive(3);
    wait_until("node 3 is told", || readyz(&demo, 3) == Some((421, "node-removed".to_owned())));
    let _joined = [4, 5].map(|node| join(&demo, node));
    wait_until("three nodes hold all", || demo.holds() == Some(vec![6; 3]));
    wait_until("each owns shards", || [1, 4, 5].iter().all(|node| demo.owns(*node)));
    let lines = status(&demo, 1);
    assert!(lines.out.matches("alive").count() == 3 && !lines.out.contains("\n3 "), "{}", lines.out);
    for node in [1, 4, 5] {
        wait_until("the node answers the same", || demo.values(node).as_ref() == Some(&expected));
    }
    // The new ones count: one of three may go again.
    demo.kill(1);
    for node in [4, 5] {
        wait_until("the rest answers the same", || demo.values(node).as_ref() == Some(&expected));
    }
    let call = |node| demo.request(node, "POST", "/call/counter/0/add", &["Idempotency-Key: after"], b"1");
    wait_until("and takes calls", || call(5).is_some_and(|reply| reply.status == 200));
}

#[test]
fn a_majority_that_was_emptied_serves_nothing_and_is_named() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    add_to_all(&demo, 0..3);
    let expected = demo.values(1).expect("they are read");
    for node in [2, 3] {
        demo.kill(node);
        let reset = millrace(&["cluster", "reset", &directory(&demo, node)]);
        assert_eq!(reset.code, Some(0), "{}", reset.err);
    }
    let mut others = [2, 3].map(|node| demo.revive(node));
    for node in 1..=3 {
        wait_until("the node names it", || readyz(&demo, node) == Some((503, "majority-lost".to_owned())));
    }
    // Node 1 has never stopped, and must not take the others for a majority.
    wait_until("it is shown", || status(&demo, 1).out.matches("lost data").count() == 2);
    assert!(status(&demo, 1).out.contains("a majority of the nodes has lost its data"), "{}", status(&demo, 1).out);
    let guidance = demo.request(1, "GET", "/cluster", &[], b"").expect("it lives").json();
    assert_eq!((&guidance["is_majority_lost"], &guidance["has_majority"]), (&true.into(), &false.into()));
    assert_eq!(guidance["lost_shards"].as_array().map(Vec::len), Some(6));
    assert_problem(&demo.request(2, "GET", "/cluster", &[], b"").expect("it lives"), 503, "majority-lost");
    // The lease of node 1 may last a little longer: nobody else can own its shards until then.
    std::thread::sleep(Duration::from_secs(2));
    for node in 1..=3 {
        for counter in 0..6 {
            let path = format!("/call/counter/{counter}/value");
            let reply = demo.request(node, "POST", &path, &[], b"null").expect("it lives");
            assert_eq!(reply.status, 503, "node {node} reads {}", reply.text());
        }
    }
    let log = std::fs::read_to_string(demo.folder.join("n1/log.txt")).expect("it logs");
    assert_eq!(log.matches("a majority of the nodes has lost its data").count(), 1, "{log}");
    let emptied = rescue(&demo, 2, &["--accept-loss"]);
    assert!(emptied.err.contains("is used by another"), "{}", emptied.err);
    for other in &mut others {
        other.interrupt();
        other.ended();
    }
    let emptied = rescue(&demo, 2, &["--accept-loss"]);
    assert!(emptied.code == Some(1) && emptied.err.contains("has no data"), "{}", emptied.err);
    demo.kill(1);
    assert_eq!(rescue(&demo, 1, &["--accept-loss"]).code, Some(0));
    let _first = demo.revive(1);
    wait_until("it has what was written", || demo.values(1).as_ref() == Some(&expected));
}

fn reset(demo: &Demo, node: u16, arguments: &[&str]) -> Output {
    millrace(&[&["cluster", "reset", &directory(demo, node)], arguments].concat())
}

/// The nodes that it was made with are gone. So once it is empty, it must ask those that there are now.
#[test]
fn a_rescued_node_is_emptied_once_others_hold_what_it_has() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    add_to_all(&demo, 0..3);
    let expected = demo.values(1).expect("they are read");
    (1..=3).for_each(|node| demo.kill(node));
    assert_eq!(rescue(&demo, 1, &["--accept-loss"]).code, Some(0));
    let refused = reset(&demo, 1, &[]);
    assert!(refused.code == Some(1) && refused.err.contains("6 shards would be lost"), "{}", refused.err);
    let _first = demo.revive(1);
    wait_until("it has what was written", || demo.values(1).as_ref() == Some(&expected));
    let _joined = [4, 5].map(|node| join(&demo, node));
    wait_until("three nodes hold all", || demo.holds() == Some(vec![6; 3]));
    wait_until("each owns shards", || [1, 4, 5].iter().all(|node| demo.owns(*node)));
    demo.kill(1);
    let done = reset(&demo, 1, &[]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let again = demo.revive(1);
    wait_until("it is given shards again", || demo.owns(1));
    wait_until("it has what was written", || demo.values(1).as_ref() == Some(&expected));

    // What cannot be read does not say who the others are. One that runs does.
    demo.kill(1);
    drop(again);
    std::fs::write(demo.folder.join("n1/manifest"), "damaged").expect("written");
    let done = reset(&demo, 1, &[]);
    assert!(done.code == Some(0) && done.err.contains("--url"), "{}", done.err);
    let url = |node: u16| format!("http://127.0.0.1:{}", demo.http_base + node - 1);
    let running = reset(&demo, 4, &["--url", &url(5)]);
    assert!(running.code == Some(1) && running.err.contains("is used by another"), "{}", running.err);
    let gone = reset(&demo, 3, &["--url", &url(5)]);
    assert!(gone.code == Some(1) && gone.err.contains("node 3 is none of the cluster"), "{}", gone.err);
    let done = reset(&demo, 1, &["--url", &url(5)]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let _again = demo.revive(1);
    wait_until("it is given shards again", || demo.owns(1));
    // It counts: another one may go.
    demo.kill(4);
    wait_until("the rest answers the same", || demo.values(1).as_ref() == Some(&expected));
}
