//! The policy allows what its lines say, whatever a URL looks like, and nothing else.

use millrace_api::ErrorCode;
use proptest::prelude::*;

use super::super::target::tests::tricky_url;
use super::*;

fn policy(lines: &[&str]) -> FetchPolicy {
    let rules = lines.iter().map(|line| FetchRule::parse(line).expect(line)).collect();
    FetchPolicy::new(rules).expect("few rules")
}

fn may(line: &str, url: &str) -> bool {
    match policy(&[line]).allows(url) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.code, ErrorCode::FetchRefused, "{url}");
            false
        }
    }
}

#[test]
fn nothing_is_allowed_unless_it_is_written_down() {
    for (url, origin) in [
        ("http://127.0.0.1/", "http://127.0.0.1"),
        ("https://EXAMPLE.com:443/x?y", "https://example.com"),
        ("http://localhost:8080/metrics", "http://localhost:8080"),
    ] {
        let error = FetchPolicy::default().allows(url).expect_err(url);
        let line = format!("to allow it, add \"{origin}\" to `allow` under `[fetch]` in the app's millrace.toml");
        assert_eq!(error.message, format!("the app may not fetch from {origin}; {line}"));
        assert!(may(origin, url), "the line that the message names allows it");
    }
}

#[test]
fn a_line_covers_its_scheme_host_and_port_only() {
    let line = "https://api.example.com";
    for url in [
        "https://api.example.com",
        "https://API.example.com:443/x?y#z",
        "https://api.example.com/a/../..%2f..;/%00",
        "https://api.ｅxample.com/",
    ] {
        assert!(may(line, url), "{url}");
    }
    for url in [
        "http://api.example.com/",
        "https://api.example.com:8443/",
        "https://example.com/",
        "https://x.api.example.com/",
        "https://xapi.example.com/",
        "https://api.example.com.evil.example/",
        "https://api.example.com@evil.example/",
        "https://api.example.com:443@evil.example/",
        "https://evil.example/https://api.example.com/",
        "https://evil.example?https://api.example.com/",
        "https://evil.example#@api.example.com/",
        "https://evil.example\\@api.example.com/",
        "https://api.example.com\\@evil.example/",
        "https://api.example.com%2eevil.example/",
        "https://api.example.com%00.evil.example/",
        "https://api.example.com%40evil.example/",
        "https://api.example.com./",
        "https://api.exаmple.com/", // a Cyrillic letter
        "https://api\u{2024}example.com.evil.example/",
        "https:api.example.com",
        "https:///api.example.com",
        "//api.example.com/",
    ] {
        assert!(!may(line, url), "{url}");
    }
}

#[test]
fn an_address_is_allowed_as_an_address() {
    for url in ["http://127.0.0.1:3000/", "http://127.1:3000/", "http://0x7f.0.0.1:3000/", "http://2130706433:3000/"] {
        assert!(may("http://127.0.0.1:3000", url), "{url}");
    }
    for url in [
        "http://localhost:3000/",
        "http://127.0.0.1/",
        "http://127.0.0.2:3000/",
        "http://[::ffff:127.0.0.1]:3000/",
        "http://[::1]:3000/",
        "http://0.0.0.0:3000/",
        "http://127.0.0.1.nip.example:3000/",
    ] {
        assert!(!may("http://127.0.0.1:3000", url), "{url}");
    }
    assert!(may("http://[::1]:3000", "http://[0:0:0:0:0:0:0:1]:3000/x"));
    assert!(!may("http://[::1]:3000", "http://[::2]:3000/x"));
}

#[test]
fn a_wildcard_covers_what_is_below_and_not_itself() {
    let line = "https://*.example.com";
    for url in ["https://a.example.com/", "https://a.b.example.com/x", "https://A.EXAMPLE.COM/"] {
        assert!(may(line, url), "{url}");
    }
    for url in [
        "https://example.com/",
        "https://.example.com/",
        "https://badexample.com/",
        "https://a.example.com.evil.example/",
        "https://a.example.org/",
        "https://a@example.com/",
        "https://*.example.com/",
        "https://evil.example/.example.com",
        "https://evil.example%2f.example.com/",
    ] {
        assert!(!may(line, url), "{url}");
    }
    assert!(may("https://*.bücher.example", "https://a.xn--bcher-kva.example/"));
}

#[test]
fn a_path_covers_itself_and_what_is_below_it() {
    let line = "http://127.0.0.1:3000/users";
    let url = |path: &str| format!("http://127.0.0.1:3000{path}");
    for path in [
        "/users",
        "/users/",
        "/users?id=1",
        "/users/1/x",
        "/users/a%20b",
        "/a/../users/1",
        "/users/..x",
        "/users/a%2Fb",
    ] {
        assert!(may(line, &url(path)), "{path}");
    }
    for path in [
        "",
        "/",
        "/users2",
        "/users.json",
        "/users;x=1",
        "/Users",
        "/%75sers",
        "//users",
        "/x/users",
        "/?/users",
        "/users/../admin",
        "/users/%2e%2e/admin",
        "/users/.%2E/admin",
        "/users/..%2fadmin",
        "/users/x%2f..%2f..%2fadmin",
        "/users/..%5cadmin",
        "/users/%252e%252e/admin",
        "/users/..%252fadmin",
        "/users/%25252e%25252e%25252fadmin",
        "/users/%25%32%65%25%32%65/admin",
        "/users/..;/admin",
        "/users/..;x=1/admin",
        "/users/%2e%2e%3b/admin",
        "/users/..%00/admin",
        "/users/%c0%ae%c0%ae/admin",
        "/users/..%0d%0a/admin",
        "/users/%25252525252e",
        "/users\\..\\admin",
    ] {
        assert!(!may(line, &url(path)), "{path}");
    }
    let below = "http://127.0.0.1:3000/users/";
    assert!(may(below, &url("/users/")) && may(below, &url("/users/1")));
    assert!(!may(below, &url("/users")) && !may(below, &url("/users2")));
}

#[test]
fn a_refusal_says_what_to_write_and_keeps_paths_to_itself() {
    let policy = policy(&["https://hooks.example.com/services", "https://*.example.org"]);
    let message = |url: &str| policy.allows(url).expect_err(url).message;
    let text = message("https://hooks.example.com/other/secret?token=secret");
    assert!(text.contains("this path of https://hooks.example.com;") && !text.contains("secret"), "{text}");
    let text = message("https://hooks.example.com/services/..%2fsecret");
    assert!(text.contains("differ in how they read") && !text.contains("secret"), "{text}");
    let text = message("https://example.org/secret");
    assert!(text.contains("add \"https://example.org\" to `allow`") && !text.contains("secret"), "{text}");
}

#[test]
fn a_wrong_line_is_refused_and_quoted() {
    for line in [
        "",
        "*",
        "example.com",
        "https://",
        "https://*",
        "https://*.",
        "https://*.*.com",
        "https://a.*.com",
        "https://api*.com",
        "https://*.127.0.0.1",
        "https://*.[::1]",
        "https://a/x://*.b",
        "https://a/users/*",
        "https://a/?x",
        "https://a?",
        "https://a/#x",
        "https://user@a",
        "https://a.",
        "https://a\\b",
        "https://a/..%2fb",
        "https://a/%252e%252e",
        "*://a",
        "ftp://a",
        " https://a",
        "https://a:0",
    ] {
        let reason = FetchRule::parse(line).expect_err(line);
        assert!(reason.starts_with(&format!("{line:?}: ")), "{reason}");
    }
    let many = vec![FetchRule::parse("https://a").expect("valid"); limits::FETCH_RULES + 1];
    assert!(FetchPolicy::new(many).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8192))]

    /// Whatever an allowed URL looks like, it leads to the allowed server and path. That holds as far as anybody can
    /// tell from the text that is sent.
    #[test]
    fn what_is_allowed_leads_where_the_line_says(url in tricky_url()) {
        if policy(&["https://allowed.example/users"]).allows(&url).is_ok() {
            let target = FetchTarget::parse(&url).expect("allowed");
            prop_assert_eq!(target.origin().to_string(), "https://allowed.example");
            let path = target.path().to_lowercase();
            prop_assert!(path == "/users" || path.starts_with("/users/"), "{}", path);
            let mut read = path;
            for (from, to) in [("%25", "%"), ("%25", "%"), ("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("%3b", ";")] {
                read = read.replace(from, to);
            }
            let climbs = |part: &str| matches!(part.split(';').next(), Some("." | ".."));
            prop_assert!(!read.split('/').any(climbs) && !read.contains("%00") && !read.contains("%c0"), "{}", read);
        }
        if policy(&["https://*.example"]).allows(&url).is_ok() {
            let target = FetchTarget::parse(&url).expect("allowed");
            prop_assert!(target.origin().is_tls && target.origin().port == 443);
            prop_assert!(matches!(&target.origin().host, FetchHost::Name(name) if name.ends_with(".example")));
        }
    }

    #[test]
    fn a_line_is_written_as_it_is_read(text in prop_oneof![tricky_url(), "https://(\\*\\.)?[a-z]{1,5}(\\.[a-z]{1,3})?(:[0-9]{1,4})?(/[a-z%./]{0,8})?"]) {
        if let Ok(rule) = FetchRule::parse(&text) {
            prop_assert_eq!(FetchRule::parse(&rule.to_string()), Ok(rule.clone()), "{}", rule);
            if !rule.is_wildcard {
                let url = rule.to_string();
                prop_assert_eq!(FetchPolicy::new(vec![rule]).map(|policy| policy.allows(&url)), Ok(Ok(())));
            }
        }
    }
}
