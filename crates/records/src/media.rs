//! Media types: which form a body has, and which one a reply is to have.

use http::{HeaderMap, HeaderValue, header};
use millrace_api::Form;
use millrace_base::{Error, ErrorCode};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const AVRO_JSON: HeaderValue = HeaderValue::from_static("application/avro+json");
pub(crate) const BINARY: HeaderValue = HeaderValue::from_static("avro/binary");
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
pub(crate) const REGISTRY: HeaderValue = HeaderValue::from_static("application/vnd.schemaregistry.v1+json");

/// The media type of a form.
pub(crate) fn value(form: Form) -> HeaderValue {
    match form {
        Form::Json => JSON,
        Form::AvroJson => AVRO_JSON,
        Form::Binary => BINARY,
    }
}

/// The media type without its parameters, lower case.
fn essence(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The form of a request's body.
///
/// # Errors
/// `unsupported-media-type`.
pub(crate) fn of_body(headers: &HeaderMap) -> Result<Form, Error> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(Form::Json);
    };
    let text = value.to_str().unwrap_or("?");
    match essence(text).as_str() {
        // The last two are what curl and browsers say when nobody told them what the body is.
        "application/json" | "text/json" | "application/x-www-form-urlencoded" | "text/plain" => Ok(Form::Json),
        "application/avro+json" | "avro/json" => Ok(Form::AvroJson),
        "avro/binary" | "application/avro" => Ok(Form::Binary),
        _ => {
            let shown: String = text.chars().take(100).collect();
            let message =
                format!("{shown:?} is not taken here: send application/json, application/avro+json or avro/binary");
            Err(Error::new(ErrorCode::UnsupportedMediaType, message))
        }
    }
}

/// Checks that a request's body says to be JSON, where nothing else is taken.
///
/// # Errors
/// `unsupported-media-type`.
pub(crate) fn json_body(headers: &HeaderMap) -> Result<(), Error> {
    if of_body(headers)? == Form::Json {
        return Ok(());
    }
    Err(Error::new(ErrorCode::UnsupportedMediaType, "this takes JSON only: send Content-Type: application/json"))
}

/// The form that a reply is wanted in: the acceptable one with the highest weight, JSON before
/// others of the same. JSON too where nothing acceptable is known here, as RFC 9110 allows.
pub(crate) fn wanted(headers: &HeaderMap) -> Form {
    let (mut best, mut best_weight) = (Form::Json, 0);
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let form = match essence(range).as_str() {
                "*/*" | "application/*" | "application/json" | "text/json" => Form::Json,
                "application/avro+json" | "avro/json" => Form::AvroJson,
                "avro/binary" | "application/avro" | "avro/*" => Form::Binary,
                _ => continue,
            };
            let weight = weight(range);
            if weight > best_weight || (weight == best_weight && weight > 0 && form == Form::Json) {
                (best, best_weight) = (form, weight);
            }
        }
    }
    best
}

/// `q`, in thousandths.
fn weight(range: &str) -> u32 {
    let weight = range.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("q") {
            return None;
        }
        let value: f64 = value.trim().parse().ok()?;
        Some((value.clamp(0.0, 1.0) * 1000.0) as u32)
    });
    weight.unwrap_or(1000)
}

/// Whether the caller wants server-sent events.
#[must_use]
pub fn wants_events(headers: &HeaderMap) -> bool {
    accepts(headers, |essence| essence == "text/event-stream")
}

/// Whether the caller is a client of the Schema Registry.
pub(crate) fn wants_registry(headers: &HeaderMap) -> bool {
    accepts(headers, |essence| essence.starts_with("application/vnd.schemaregistry"))
}

fn accepts(headers: &HeaderMap, is_it: impl Fn(&str) -> bool) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|range| is_it(&essence(range))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a value"))])
    }

    #[test]
    fn bodies_have_the_form_they_say() {
        assert_eq!(of_body(&HeaderMap::new()), Ok(Form::Json));
        for (value, form) in [
            ("application/json; charset=utf-8", Form::Json),
            ("application/x-www-form-urlencoded", Form::Json),
            ("Application/Avro+JSON", Form::AvroJson),
            ("avro/binary", Form::Binary),
        ] {
            let headers = with(header::CONTENT_TYPE, value);
            assert_eq!(of_body(&headers), Ok(form));
            assert_eq!(json_body(&headers).is_ok(), form == Form::Json);
        }
        let refused = of_body(&with(header::CONTENT_TYPE, "application/xml")).expect_err("unknown");
        assert_eq!(refused.code, ErrorCode::UnsupportedMediaType);
    }

    #[test]
    fn replies_have_the_form_that_is_wanted_most() {
        for (value, form) in [
            ("*/*", Form::Json),
            ("text/html", Form::Json),
            ("avro/binary", Form::Binary),
            ("avro/binary, application/json", Form::Json),
            ("application/json;q=0.5, avro/binary;q=0.9", Form::Binary),
            ("avro/binary;q=0.1, */*;q=0.01", Form::Binary),
            ("application/avro+json; q=x", Form::AvroJson),
            ("avro/binary;q=0", Form::Json),
        ] {
            assert_eq!(wanted(&with(header::ACCEPT, value)), form, "{value}");
        }
        assert_eq!(wanted(&HeaderMap::new()), Form::Json);
        assert!(wants_events(&with(header::ACCEPT, "text/event-stream;q=1, */*")));
        assert!(!wants_events(&with(header::ACCEPT, "*/*")));
        assert!(wants_registry(&with(header::ACCEPT, "application/vnd.schemaregistry.v1+json, application/json")));
    }
}
