//! Media types: which form a body has, and which one a reply is to have.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};
use millrace_api::Form;
use millrace_base::{Error, ErrorCode};

use crate::request::SCHEMA_ID;
use crate::url::refused;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const AVRO_JSON: HeaderValue = HeaderValue::from_static("application/avro+json");
pub(crate) const BINARY: HeaderValue = HeaderValue::from_static("avro/binary");
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
/// What the Schema Registry's URLs answer.
pub const REGISTRY: HeaderValue = HeaderValue::from_static("application/vnd.schemaregistry.v1+json");

/// The media type of a form.
pub(crate) fn value(form: Form) -> HeaderValue {
    match form {
        Form::Json => JSON,
        Form::AvroJson => AVRO_JSON,
        Form::Binary => BINARY,
    }
}

/// The media type without its parameters, lower case.
fn essence(value: &str) -> Cow<'_, str> {
    let essence = value.split(';').next().unwrap_or_default().trim();
    // Nearly all clients write it so already.
    if essence.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(essence.to_ascii_lowercase())
    } else {
        Cow::Borrowed(essence)
    }
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
    match &*essence(text) {
        // The last one is what curl says when nobody told it what the body is.
        "application/json" | "text/json" | "application/x-www-form-urlencoded" => Ok(Form::Json),
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

/// The registry's id of the schema that a request says its body is written with.
///
/// # Errors
/// `bad-request`, also for a body that names its fields: it is read by them, whatever a header says.
pub(crate) fn written_with(headers: &HeaderMap, form: Form) -> Result<Option<u32>, Error> {
    let mut values = headers.get_all(&SCHEMA_ID).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if form != Form::Binary {
        return Err(refused(
            "Millrace-Schema-Id says what avro/binary is written with; this body is none: leave it out",
        ));
    }
    // Digits alone: `parse` takes a sign too.
    let id = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match (id.and_then(|text| text.parse().ok()), values.next()) {
        (Some(id), None) => Ok(Some(id)),
        _ => Err(refused("Millrace-Schema-Id is the id of one schema, a whole number")),
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

/// Checks that a body is what clients of the Schema Registry send.
///
/// # Errors
/// `unsupported-media-type`.
pub(crate) fn registry_body(headers: &HeaderMap) -> Result<(), Error> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or("?");
    let essence = essence(text);
    let is_taken = essence.starts_with("application/vnd.schemaregistry")
        // The Registry takes the first of these too; the other two as records do.
        || matches!(&*essence, "application/octet-stream" | "application/x-www-form-urlencoded" | "text/json")
        || essence == "application/json";
    if is_taken {
        return Ok(());
    }
    let shown: String = text.chars().take(100).collect();
    let message =
        format!("{shown:?} is not taken here: send application/vnd.schemaregistry.v1+json or application/json");
    Err(Error::new(ErrorCode::UnsupportedMediaType, message))
}

/// The forms of a whole record.
pub(crate) const ANY_FORM: &[Form] = &[Form::Json, Form::AvroJson, Form::Binary];
/// The forms of several records, or of parts of one: those that can stand within JSON.
pub(crate) const JSON_FORMS: &[Form] = &[Form::Json, Form::AvroJson];

/// Which of the forms `offered` a reply is wanted in: the acceptable one with the highest weight, JSON
/// before others of the same, and where nothing is said. JSON is always among those offered.
///
/// # Errors
/// `not-acceptable`.
pub(crate) fn wanted(headers: &HeaderMap, offered: &[Form]) -> Result<Form, Error> {
    let (mut best, mut best_weight, mut is_said) = (Form::Json, 0, false);
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let essence = essence(range);
            is_said |= !essence.is_empty();
            let form = match &*essence {
                // Some clients write the first one for "*/*".
                "*" | "*/*" | "application/*" | "application/json" | "text/json" => Form::Json,
                "application/avro+json" | "avro/json" => Form::AvroJson,
                "avro/binary" | "application/avro" | "avro/*" => Form::Binary,
                _ => continue,
            };
            let weight = weight(range);
            if !offered.contains(&form) {
                continue;
            }
            if weight > best_weight || (weight == best_weight && weight > 0 && form == Form::Json) {
                (best, best_weight) = (form, weight);
            }
        }
    }
    if is_said && best_weight == 0 { Err(not_acceptable(offered)) } else { Ok(best) }
}

#[cold]
fn not_acceptable(offered: &[Form]) -> Error {
    let forms: Vec<_> = offered.iter().map(|form| value(*form)).collect();
    let names: Vec<&str> = forms.iter().filter_map(|value| value.to_str().ok()).collect();
    let message = format!("Accept lists none of the forms of this reply: {}", names.join(", "));
    Error::new(ErrorCode::NotAcceptable, message)
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
        for unknown in ["application/xml", "text/plain;charset=UTF-8"] {
            let refused = of_body(&with(header::CONTENT_TYPE, unknown)).expect_err("unknown");
            assert_eq!(refused.code, ErrorCode::UnsupportedMediaType);
            assert!(registry_body(&with(header::CONTENT_TYPE, unknown)).is_err());
        }
        for known in
            ["application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json;q=1", "Application/JSON"]
        {
            assert_eq!(registry_body(&with(header::CONTENT_TYPE, known)), Ok(()), "{known}");
        }
    }

    #[test]
    fn only_binary_is_written_with_a_schema() {
        assert_eq!(written_with(&HeaderMap::new(), Form::Binary), Ok(None));
        assert_eq!(written_with(&HeaderMap::new(), Form::Json), Ok(None));
        assert_eq!(written_with(&with(SCHEMA_ID.clone(), "4294967295"), Form::Binary), Ok(Some(u32::MAX)));
        for bad in ["", "+1", "-1", "4294967296", "1, 2", "latest"] {
            let error = written_with(&with(SCHEMA_ID.clone(), bad), Form::Binary).expect_err(bad);
            assert_eq!(error.code, ErrorCode::BadRequest);
        }
        let mut twice = with(SCHEMA_ID.clone(), "1");
        twice.append(SCHEMA_ID.clone(), HeaderValue::from_static("1"));
        assert!(written_with(&twice, Form::Binary).is_err());
        for form in [Form::Json, Form::AvroJson] {
            assert!(written_with(&with(SCHEMA_ID.clone(), "1"), form).is_err());
        }
    }

    #[test]
    fn replies_have_the_form_that_is_wanted_most() {
        for (value, form) in [
            ("*/*", Form::Json),
            ("text/html, *; q=.2", Form::Json),
            ("avro/binary", Form::Binary),
            ("avro/binary, application/json", Form::Json),
            ("application/json;q=0.5, avro/binary;q=0.9", Form::Binary),
            ("avro/binary;q=0.1, */*;q=0.01", Form::Binary),
            ("application/avro+json; q=x", Form::AvroJson),
            ("", Form::Json),
        ] {
            assert_eq!(wanted(&with(header::ACCEPT, value), ANY_FORM), Ok(form), "{value}");
        }
        assert_eq!(wanted(&HeaderMap::new(), ANY_FORM), Ok(Form::Json));
        let mixed = with(header::ACCEPT, "avro/binary, application/json;q=0.1");
        assert_eq!(wanted(&mixed, JSON_FORMS), Ok(Form::Json));
        for (value, offered) in [
            ("text/html", ANY_FORM),
            ("avro/binary;q=0", ANY_FORM),
            ("application/json;q=0", ANY_FORM),
            ("avro/binary", JSON_FORMS),
        ] {
            let refused = wanted(&with(header::ACCEPT, value), offered).expect_err(value);
            assert!(refused.code == ErrorCode::NotAcceptable && refused.message.contains("avro+json"), "{refused}");
        }
        assert!(wants_events(&with(header::ACCEPT, "text/event-stream;q=1, */*")));
        assert!(!wants_events(&with(header::ACCEPT, "*/*")));
        assert!(wants_registry(&with(header::ACCEPT, "application/vnd.schemaregistry.v1+json, application/json")));
    }
}
