//! Threads record one history. A call that is given up is unknown. A history that is not sound is kept.

use std::thread;

use millrace_history::{Access, Fact, Found, History, Outcome, Recorder};

#[test]
fn threads_record_and_a_dropped_call_is_unknown() {
    let recorder = Recorder::new();
    let counter = std::sync::atomic::AtomicI64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            let (mut client, counter) = (recorder.client(), &counter);
            scope.spawn(move || {
                for round in 0..100 {
                    let call = client.invoke([Access::increment("c")]);
                    let before = counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    match round % 10 {
                        0 => drop(call),
                        _ => call.ok([Found::Number(before)]),
                    }
                }
            });
        }
    });
    recorder.note(Fact::Counters([("c".to_owned(), counter.into_inner())].into()));
    let history = recorder.history();
    assert_eq!(history.outcomes(), (720, 0, 80));
    let verdict = millrace_history::verdict(&history);
    assert!(verdict.is_sound(), "{verdict}");
    assert!(history.operations.iter().all(|operation| operation.end >= Some(operation.begin)));
    assert!(history.operations.iter().any(|it| it.outcome == Outcome::Unknown("given up".to_owned())));
}

#[test]
fn an_unsound_history_is_kept_and_judged_the_same_again() {
    let mut history = History::new();
    let id = history.invoke(0, [Access::read("x")], 1);
    history.ok(id, [Found::value(5)], 2);
    let path = std::env::temp_dir().join(format!("millrace-history-{}.jsonl", std::process::id()));
    let error = history.check_or_keep(&path).expect_err("nobody wrote it");
    assert!(error.contains("phantom value") && error.contains("kept in"), "{error}");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_millrace-history")).arg(&path).output();
    let kept = std::fs::read(&path).expect("it is kept");
    std::fs::remove_file(&path).expect("it goes away");
    let output = output.expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("register: phantom value: no transaction left 5 in x"));
    assert_eq!(History::read_lines(kept.as_slice()).expect("it is one"), history);
    assert!(
        History::read_lines(&b"{\"fact\":{\"misuse\":\"\"}}\nx\n"[..])
            .is_err_and(|error| error.to_string().starts_with("line 2"))
    );
}
