//! A URL has one reading and one form, or is refused.

use proptest::prelude::*;

use super::*;

fn read(url: &str) -> String {
    FetchTarget::parse(url).expect(url).to_string()
}

fn reason(url: &str) -> String {
    let error = FetchTarget::parse(url).expect_err(url);
    assert_eq!(error.code, ErrorCode::FetchRefused, "{url}");
    error.message
}

#[test]
fn many_spellings_have_one_form() {
    for (url, form) in [
        ("http://example.com", "http://example.com/"),
        ("HTTP://EXAMPLE.com:80/", "http://example.com/"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:0443/a", "https://example.com/a"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com/a/../b/./c?x=1&y=/../#fragment", "http://example.com/b/c?x=1&y=/../"),
        ("http://example.com/a/%2e%2E/b", "http://example.com/b"),
        ("http://example.com/../../b", "http://example.com/b"),
        ("http://example.com/a b?c d", "http://example.com/a%20b?c%20d"),
        ("http://example.com?x", "http://example.com/?x"),
        ("http://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC"),
        ("http://ｅｘａｍｐｌｅ。com/", "http://example.com/"),
        ("http://ex%61mple.com/", "http://example.com/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0x7f000001/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://017700000001:3000/", "http://127.0.0.1:3000/"),
        ("http://127.0.0.1./x", "http://127.0.0.1/x"),
        ("http://[0:0::1]:80/", "http://[::1]/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]/"),
        ("http://my_host-1.internal/", "http://my_host-1.internal/"),
    ] {
        assert_eq!(read(url), form, "{url}");
    }
}

#[test]
fn what_would_have_to_be_guessed_is_refused() {
    let long = format!("http://example.com/{}", "x".repeat(limits::FETCH_URL_BYTES));
    let long_label = format!("http://{}.com/", "x".repeat(64));
    let long_name = format!("http://{}com/", "x.".repeat(126));
    for (url, part) in [
        ("", "not an absolute URL"),
        ("/users", "not an absolute URL"),
        ("//example.com/", "not an absolute URL"),
        ("example.com", "not an absolute URL"),
        ("http://", "not an absolute URL"),
        ("http://example.com:99999/", "not an absolute URL"),
        ("http://example.com:-1/", "not an absolute URL"),
        ("http://exa mple.com/", "not an absolute URL"),
        ("http://a%2fb/", "not an absolute URL"),
        ("http://a%00b/", "not an absolute URL"),
        ("http://[::1/", "not an absolute URL"),
        ("http://[fe80::1%25eth0]/", "not an absolute URL"),
        ("http://1.2.3.4.5/", "not an absolute URL"),
        ("http://256.256.256.256/", "not an absolute URL"),
        ("ftp://example.com/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("data:text/plain,x", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("ws://example.com/", "only http and https"),
        ("http:/example.com/", "must follow the URL's scheme"),
        ("http:example.com/", "must follow the URL's scheme"),
        ("http:///example.com/", "must follow the URL's scheme"),
        ("http://user@example.com/", "user name or password"),
        ("http://user:word@example.com/", "user name or password"),
        ("http://:@example.com/", "user name or password"),
        ("http://@example.com/", "user name or password"),
        ("http://a@b@example.com/", "user name or password"),
        ("http:\\\\example.com\\", "backslash"),
        ("http://example.com\\@evil.example/", "backslash"),
        ("http://example.com/a\\b", "backslash"),
        (" http://example.com/", "control characters"),
        ("http://example.com/ ", "control characters"),
        ("http://exam\tple.com/", "control characters"),
        ("http://example.com/a\nb", "control characters"),
        ("ht\ntp://example.com/", "control characters"),
        ("http://example.com./", "end in a dot"),
        ("http://example..com/", "not a name"),
        ("http://.example.com/", "not a name"),
        ("http://*.example.com/", "not a name"),
        ("http://a!b/", "not a name"),
        ("http://a'b/", "not a name"),
        ("http://example.com:0/", "port is 0"),
        (&long, "bytes"),
        (&long_label, ""),
        (&long_name, ""),
    ] {
        assert!(reason(url).contains(part), "{url:?}: {}", reason(url));
    }
}

#[test]
fn a_refusal_does_not_repeat_the_url() {
    for url in ["http://user:hunter2@example.com/", "http://exam ple.com/?token=hunter2", "ftp://x/hunter2"] {
        assert!(!reason(url).contains("hunter2"), "{}", reason(url));
    }
}

#[test]
fn the_parts_are_those_of_the_form() {
    let target = FetchTarget::parse("https://[::1]:8443/a/b?c=d").expect("valid");
    assert_eq!((target.path(), target.path_and_query()), ("/a/b", "/a/b?c=d"));
    assert_eq!(target.origin().authority(), "[::1]:8443");
    assert!(target.origin().is_tls);
}

/// Pieces that URLs are confused with.
pub(in crate::fetch) fn tricky_url() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "http",
        "https",
        "HTTP",
        "://",
        ":",
        "/",
        "//",
        "\\",
        "@",
        "#",
        "?",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        "%2f",
        "%5c",
        "%252e",
        "%25",
        "%00",
        "%c0%ae",
        ";",
        "allowed.example",
        "evil.example",
        "Allowed",
        "example",
        "*",
        "*.",
        "[",
        "]",
        "::1",
        "127.1",
        "127.0.0.1",
        "0x7f.1",
        ":443",
        ":80",
        ":0",
        "users",
        "admin",
        " ",
        "\t",
        "\n",
        "\0",
        "ü",
        "。",
        "．",
        "／",
        "xn--",
        "\u{200d}",
        "\u{202e}",
        "user:word@",
        "=",
        "&",
        "-",
        "_",
        "%",
        "%zz",
    ]);
    let start = prop::sample::select(vec![
        "https://allowed.example",
        "https://allowed.example/users",
        "http://allowed.example",
        "https://",
        "",
    ]);
    (start, prop::collection::vec(pieces, 0..8)).prop_map(|(start, pieces)| start.to_owned() + &pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_form_is_read_as_itself(url in prop_oneof![tricky_url(), any::<String>(), "https?://\\PC{0,40}"]) {
        if let Ok(target) = FetchTarget::parse(&url) {
            let form = target.to_string();
            prop_assert_eq!(FetchTarget::parse(&form), Ok(target.clone()), "{}", form);
            prop_assert!(form.is_ascii() && target.path().starts_with('/') && target.origin().port != 0);
            prop_assert!(!target.origin().to_string().contains(['@', '\\', '#', '?', '%', ' ']), "{}", form);
        }
    }
}
