//! Tests of templates: the result of each placeholder, and no text makes the compiler panic.

use proptest::prelude::*;

use super::*;

fn render(text: &str) -> String {
    let template = Compiler::default().compile(text).unwrap();
    let mut scope = Scope::new(1, 0, 1);
    let mut out = Vec::new();
    scope.next_request();
    template.render(&mut scope, &mut out);
    String::from_utf8(out).unwrap()
}

fn refusal(text: &str) -> TemplateError {
    Compiler::default().compile(text).unwrap_err()
}

#[test]
fn text_without_parts_stays_as_it_is() {
    for text in ["", "plain", r#"{"a":{"b":{}}}"#, "}} } { {x}", "ä{{open}}}}"] {
        assert_eq!(render(text), text.replace("{{open}}", "{{"));
    }
    assert_eq!(Compiler::default().compile("abc").unwrap().as_literal(), Some(b"abc".as_slice()));
    assert_eq!(Compiler::default().compile("a{{seq}}").unwrap().as_literal(), None);
}

#[test]
fn parts_become_what_the_table_says() {
    assert_eq!(render("{{seq}}-{{seq:7}}"), "0-7");
    assert_eq!(render("{{uniform:5:6}}"), "5");
    assert_eq!(render("{{zipf:1:0.99}}"), "0");
    assert_eq!(render("{{pick:only}}"), "only");
    assert_eq!(render("{{base64:ab}}"), "YWI=");
    assert_eq!(render("{{base64:u{{seq}}:{{base64:p}}}}"), STANDARD.encode("u0:cA=="));
    assert_eq!(render("{{k=seq:40}}/{{$k}}/{{base64:{{$k}}}}"), "40/40/NDA=");
    let uuid = render("{{uuid}}");
    assert_eq!((uuid.len(), &uuid[8..9], &uuid[14..15]), (36, "-", "4"));
    let numbers: Vec<u64> = (0..200)
        .map(|seed| {
            let mut out = Vec::new();
            let template = Compiler::default().compile("{{uniform:10:13}}").unwrap();
            template.render(&mut Scope::new(seed, 0, 1), &mut out);
            String::from_utf8(out).unwrap().parse().unwrap()
        })
        .collect();
    assert!([10, 11, 12].iter().all(|number| numbers.contains(number)) && numbers.iter().all(|n| (10..13).contains(n)));
}

#[test]
fn sequence_numbers_of_threads_do_not_meet() {
    let template = Compiler::default().compile("{{seq}},").unwrap();
    let mut seen = Vec::new();
    for thread in 0..3 {
        let mut scope = Scope::new(1, thread, 3);
        let mut out = Vec::new();
        for _ in 0..4 {
            scope.next_request();
            template.render(&mut scope, &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        seen.extend(text.split_terminator(',').map(|number| number.parse::<u64>().unwrap()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..12).collect::<Vec<_>>());
}

#[test]
fn names_are_shared_by_the_parts_of_one_request() {
    let mut compiler = Compiler::default();
    let first = compiler.compile("{{user=uniform:0:1000000}}").unwrap();
    let second = compiler.compile("{{$user}}").unwrap();
    let mut scope = Scope::new(9, 0, 1);
    for _ in 0..3 {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        first.render(&mut scope, &mut left);
        second.render(&mut scope, &mut right);
        assert_eq!(left, right);
    }
}

#[test]
fn every_mistake_gets_its_own_error_at_its_place() {
    for (text, position, words) in [
        ("ab{{seq", 2, "not closed"),
        ("{{base64:ab", 0, "not closed"),
        ("{{base64:a{{seq}b}}", 10, "\"seq}b\""),
        ("x{{}}", 1, "is not a part"),
        ("{{nope}}", 0, "\"nope\" is not a part"),
        ("{{uniform}}", 0, "two bounds"),
        ("{{uniform:1}}", 0, "two bounds"),
        ("{{uniform:5:5}}", 0, "no number"),
        ("{{uniform:-1:5}}", 0, "\"-1\" is not a whole number"),
        ("{{zipf:10}}", 0, "exponent"),
        ("{{zipf:10:x}}", 0, "\"x\" is not a number"),
        ("{{zipf:0:1}}", 0, "count from 1"),
        ("{{zipf:5:nan}}", 0, "exponent above 0"),
        ("{{uuid:4}}", 0, "takes no arguments"),
        ("{{pick}}", 0, "pick needs words"),
        ("{{base64}}", 0, "base64 needs"),
        ("{{$k}}", 0, "nothing before"),
        ("{{k=seq}}{{k=seq}}", 9, "twice"),
        ("{{k=$k}}", 0, "nothing before"),
    ] {
        let error = refusal(text);
        assert_eq!(error.position, position, "{text}: {error}");
        assert!(error.message.contains(words), "{text}: {error}");
    }
    let deep = format!("{}x{}", "{{base64:".repeat(9), "}}".repeat(9));
    assert!(refusal(&deep).message.contains("deep"));
    let named = format!("{{{{{}seq}}}}", (0..20).map(|n| format!("n{n}=")).collect::<String>());
    assert!(refusal(&named).message.contains("deep"));
    let many: String = (0..100).map(|n| format!("{{{{n{n}=seq}}}}")).collect();
    assert!(refusal(&many).message.contains("64 names"));
    assert!(refusal(&"x".repeat(TEMPLATE_BYTES + 1)).message.contains("longer"));
}

#[test]
fn finds_bad_bytes_at_any_depth() {
    let has_newline = |text: &str| Compiler::default().compile(text).unwrap().holds(|byte| byte == b'\n');
    assert!(has_newline("a\nb") && has_newline("{{pick:a,b\n}}") && has_newline("{{k=pick:\n}}"));
    assert!(!has_newline("{{base64:a\nb}}{{seq}}"));
}

proptest! {
    #[test]
    fn compiling_and_rendering_never_panic(text in "(\\{\\{|\\}\\}|base64:|seq|zipf:|uniform:|pick:|[a-z0-9:=$,ä\\n]){0,30}") {
        if let Ok(template) = Compiler::default().compile(&text) {
            let mut out = Vec::new();
            template.render(&mut Scope::new(3, 0, 1), &mut out);
        }
    }

    #[test]
    fn any_text_without_braces_renders_to_itself(text in "[^{]{0,100}") {
        prop_assert_eq!(render(&text), text);
    }
}
