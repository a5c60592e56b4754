//! The little of XML that checks need: the texts of elements that hold text only.

/// The texts of all elements with this name, in order.
pub(super) fn all(document: &[u8], element: &str) -> impl Iterator<Item = String> {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let text = String::from_utf8_lossy(document).into_owned();
    let mut position = 0;
    std::iter::from_fn(move || {
        let rest = text.get(position..)?;
        let start = rest.find(&open)? + open.len();
        let length = rest[start..].find(&close)?;
        position += start + length + close.len();
        Some(unescape(&rest[start..start + length]))
    })
}

/// The text of the first element with this name.
pub(super) fn first(document: &[u8], element: &str) -> Option<String> {
    all(document, element).next()
}

fn unescape(text: &str) -> String {
    let mut text = text.to_owned();
    for (escaped, plain) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&amp;", "&")]
    {
        text = text.replace(escaped, plain);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_in_order_and_unescaped() {
        let document = b"<R><Key>a&amp;b</Key><K/><Key>&lt;c</Key><Key>cut";
        assert_eq!(all(document, "Key").collect::<Vec<_>>(), ["a&b", "<c"]);
        assert_eq!((first(document, "ETag"), first(b"\xff<", "Key")), (None, None));
    }
}
