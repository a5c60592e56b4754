//! Which web pages of other origins may use a bucket: validation of rules, and the headers that answer a page.

use millrace_api::objects::{CorsConfiguration, CorsRule, Refusal};
use millrace_base::Error;

use crate::limits;

const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

/// Checks a configuration before it is kept.
///
/// # Errors
/// `MalformedXML` or `InvalidRequest`.
pub fn check(configuration: &CorsConfiguration) -> Result<(), Error> {
    let rules = &configuration.rules;
    if rules.is_empty() || rules.len() > limits::CORS_RULES {
        let message = format!("A CORS configuration has 1 to {} rules", limits::CORS_RULES);
        return Err(Refusal::MalformedXml.error(message));
    }
    rules.iter().try_for_each(check_rule)
}

fn check_rule(rule: &CorsRule) -> Result<(), Error> {
    if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
        return Err(Refusal::MalformedXml.error("A CORS rule needs an AllowedMethod and an AllowedOrigin"));
    }
    let refuse = |message: String| Err(Refusal::InvalidRequest.error(message));
    if rule.id.as_ref().is_some_and(|id| id.chars().count() > limits::RULE_ID_CHARACTERS) {
        return refuse(format!("The ID of a CORS rule has at most {} characters", limits::RULE_ID_CHARACTERS));
    }
    if let Some(method) = rule.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
        return refuse(format!("Found unsupported HTTP method in CORS config. Unsupported method is {method}"));
    }
    for (name, patterns) in [("AllowedOrigin", &rule.allowed_origins), ("AllowedHeader", &rule.allowed_headers)] {
        if let Some(pattern) = patterns.iter().find(|pattern| pattern.matches('*').count() > 1) {
            return refuse(format!("{name} \"{pattern}\" can not have more than one wildcard"));
        }
    }
    let is_header = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
    };
    let is_pattern = |pattern: &String| pattern == "*" || is_header(&pattern.replace('*', ""));
    if let Some(pattern) = rule.allowed_headers.iter().find(|pattern| !is_pattern(pattern)) {
        return refuse(format!("AllowedHeader \"{pattern}\" contains invalid character."));
    }
    match rule.expose_headers.iter().find(|name| !is_header(name)) {
        Some(name) if name.contains('*') => {
            refuse(format!("ExposeHeader \"{name}\" contains wildcard. We currently do not support wildcard for it"))
        }
        Some(name) => refuse(format!("ExposeHeader \"{name}\" is not the name of a header")),
        None => Ok(()),
    }
}

/// Whether a pattern with at most one `*` matches.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
    }
}

/// The headers that answer a page of this origin, by the first rule that fits; `None` if none does. `headers` are those
/// that the page wants to send; a request that is no preflight names none.
#[must_use]
pub fn answer(
    configuration: &CorsConfiguration,
    origin: &str,
    method: &str,
    headers: &[String],
) -> Option<Vec<(String, String)>> {
    let fits = |rule: &&CorsRule| {
        rule.allowed_methods.iter().any(|allowed| allowed == method)
            && rule.allowed_origins.iter().any(|pattern| matches(pattern, origin))
            && headers.iter().all(|header| {
                let header = header.to_ascii_lowercase();
                rule.allowed_headers.iter().any(|pattern| matches(&pattern.to_ascii_lowercase(), &header))
            })
    };
    let rule = configuration.rules.iter().find(fits)?;
    let is_any = rule.allowed_origins.iter().any(|pattern| pattern == "*");
    let mut answer = Vec::new();
    let mut add = |name: &str, value: String| answer.push((name.to_owned(), value));
    add("access-control-allow-origin", if is_any { "*".to_owned() } else { origin.to_owned() });
    if !is_any {
        add("access-control-allow-credentials", "true".to_owned());
    }
    add("access-control-allow-methods", rule.allowed_methods.join(", "));
    if !headers.is_empty() {
        add("access-control-allow-headers", headers.join(", "));
    }
    if !rule.expose_headers.is_empty() {
        add("access-control-expose-headers", rule.expose_headers.join(", "));
    }
    if let Some(max_age_s) = rule.max_age_s {
        add("access-control-max-age", max_age_s.to_string());
    }
    // The answer depends on these, whatever they are: a cache must not give it to another origin.
    add("vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".to_owned());
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn rule(methods: &str, origins: &str, headers: &str) -> CorsRule {
        CorsRule {
            allowed_methods: words(methods),
            allowed_origins: words(origins),
            allowed_headers: words(headers),
            ..CorsRule::default()
        }
    }

    #[test]
    fn rules_are_checked() {
        for (rule, expected) in [
            (rule("GET PUT POST DELETE HEAD", "*", "*"), None),
            (rule("GET", "https://*.example.com", "x-*"), None),
            (rule("", "*", ""), Some(Refusal::MalformedXml)),
            (rule("GET", "", ""), Some(Refusal::MalformedXml)),
            (rule("PATCH", "*", ""), Some(Refusal::InvalidRequest)),
            (rule("get", "*", ""), Some(Refusal::InvalidRequest)),
            (rule("GET", "*.*", ""), Some(Refusal::InvalidRequest)),
            (rule("GET", "*", "x-*-*"), Some(Refusal::InvalidRequest)),
            (rule("GET", "*", "x-date bad/header"), Some(Refusal::InvalidRequest)),
            (rule("GET", "*", "x-custom:header"), Some(Refusal::InvalidRequest)),
            (CorsRule { expose_headers: words("x-*"), ..rule("GET", "*", "") }, Some(Refusal::InvalidRequest)),
            (CorsRule { expose_headers: vec!["a\r\nb".into()], ..rule("GET", "*", "") }, Some(Refusal::InvalidRequest)),
            (CorsRule { id: Some("i".repeat(256)), ..rule("GET", "*", "") }, Some(Refusal::InvalidRequest)),
        ] {
            let refusal = check(&CorsConfiguration { rules: vec![rule.clone()] }).err();
            assert_eq!(refusal.as_ref().and_then(Refusal::of), expected, "{rule:?}");
        }
        for count in [0, 101] {
            assert!(check(&CorsConfiguration { rules: vec![rule("GET", "*", ""); count] }).is_err(), "{count}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_answers() {
        let rules = vec![
            rule("GET", "*suffix", ""),
            rule("GET", "start*end", ""),
            rule("PUT", "https://a", "X-Amz-* content-type"),
            rule("GET PUT", "*", ""),
        ];
        let configuration = CorsConfiguration { rules };
        // Origin, method, headers; the allowed origin and methods.
        for (origin, method, headers, expected) in [
            ("foo.suffix", "GET", "", Some(("foo.suffix", "GET"))),
            ("suffix", "GET", "", Some(("suffix", "GET"))),
            ("startend", "GET", "", Some(("startend", "GET"))),
            // The start and the end do not share letters.
            ("starend", "GET", "", Some(("*", "GET, PUT"))),
            ("https://a", "PUT", "x-amz-acl Content-Type", Some(("https://a", "PUT"))),
            ("https://a", "PUT", "x-other", None),
            ("https://b", "PUT", "", Some(("*", "GET, PUT"))),
            ("https://b", "DELETE", "", None),
            ("", "GET", "", Some(("*", "GET, PUT"))),
        ] {
            let answer = answer(&configuration, origin, method, &words(headers));
            let of = |name: &str| {
                let headers = answer.as_ref()?;
                headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
            };
            let found = of("access-control-allow-origin").zip(of("access-control-allow-methods"));
            assert_eq!(found, expected, "{origin} {method} {headers}");
            let credentials = of("access-control-allow-credentials");
            assert_eq!(credentials.is_some(), expected.is_some_and(|(origin, _)| origin != "*"));
        }
    }

    #[test]
    fn a_rule_says_all_that_it_has() {
        let rule = CorsRule { expose_headers: words("x-a x-b"), max_age_s: Some(3), ..rule("PUT", "o", "*") };
        let answer = answer(&CorsConfiguration { rules: vec![rule] }, "o", "PUT", &words("h1 h2")).expect("it fits");
        let lines: Vec<String> = answer.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            lines,
            [
                "access-control-allow-origin: o",
                "access-control-allow-credentials: true",
                "access-control-allow-methods: PUT",
                "access-control-allow-headers: h1, h2",
                "access-control-expose-headers: x-a, x-b",
                "access-control-max-age: 3",
                "vary: Origin, Access-Control-Request-Headers, Access-Control-Request-Method",
            ]
        );
    }
}
