//! A line of an app's allow-list, and a URL below it. A URL that is read has one form, which is read as itself. An
//! allowed URL leads to the line's server and below its path.

use millrace_base::ErrorCode;
use millrace_func::{FetchHost, FetchPolicy, FetchRule, FetchTarget};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (line, url) = text.split_once('\n').unwrap_or((text, text));
    let target = check_target(url);
    let rule = match FetchRule::parse(line) {
        Ok(rule) => rule,
        Err(reason) => {
            assert!(!reason.is_empty());
            return;
        }
    };
    let written = rule.to_string();
    assert_eq!(FetchRule::parse(&written).as_ref(), Ok(&rule));
    let policy = FetchPolicy::new(vec![rule]).expect("one line is not too many");
    match policy.allows(url) {
        Ok(()) => check_allowed(&written, &target.expect("what is allowed can be read")),
        Err(error) => assert!(error.code == ErrorCode::FetchRefused && !error.message.is_empty()),
    }
    // A policy allows the URL that it spells out.
    if !written.contains('*') {
        assert_eq!(policy.allows(&written), Ok(()));
    }
}

fn check_target(url: &str) -> Option<FetchTarget> {
    let target = match FetchTarget::parse(url) {
        Ok(target) => target,
        Err(error) => {
            assert!(error.code == ErrorCode::FetchRefused && !error.message.is_empty());
            return None;
        }
    };
    let form = target.to_string();
    assert!(form.is_ascii() && !form.contains([' ', '\t', '\r', '\n', '\0']));
    assert_eq!(FetchTarget::parse(&form).as_ref(), Ok(&target));
    assert!(!target.origin().to_string().contains(['@', '\\', '#', '?', '%']));
    Some(target)
}

/// Compares texts, while the policy compares parts.
fn check_allowed(line: &str, target: &FetchTarget) {
    let origin = target.origin();
    assert!(origin.port != 0);
    let (scheme, rest) = line.split_once("://").expect("lines have a scheme");
    assert_eq!(scheme, if origin.is_tls { "https" } else { "http" });
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    match authority.strip_prefix('*') {
        Some(below) => {
            assert!(origin.authority().len() > below.len() && origin.authority().ends_with(below));
            assert!(matches!(origin.host, FetchHost::Name(_)));
        }
        None => assert_eq!(authority, origin.authority()),
    }
    if !path.is_empty() {
        let rest = target.path().strip_prefix(path).expect("below the line's path");
        assert!(path.ends_with('/') || rest.is_empty() || rest.starts_with('/'));
        let lower =
            rest.to_ascii_lowercase().replace("%25", "%").replace("%2f", "/").replace("%5c", "/").replace("%2e", ".");
        assert!(lower.split('/').all(|part| part != "." && part != ".."), "{rest}");
    }
}
