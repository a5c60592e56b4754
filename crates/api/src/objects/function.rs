//! What functions ask of buckets, whichever engine runs them.

use std::collections::BTreeMap;

use millrace_base::{Error, ErrorCode, limits};

use super::{
    DeleteOne, ListRequest, ObjectOperation, PutInput, ReadConditions, UploadInput, WriteConditions, WrittenBody,
};

/// Bytes of the names and values of an object's metadata: S3's bound.
const METADATA_BYTES: usize = 2 << 10;

/// Bytes of a content type.
const CONTENT_TYPE_BYTES: usize = 255;

/// How a function writes an object. What is empty is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPut {
    /// Of the header `content-type`.
    pub content_type: String,
    /// Metadata of the writer's.
    pub metadata: BTreeMap<String, String>,
    /// Only over an object with this ETag.
    pub if_match: String,
    /// Only over none with this ETag; with `*`, over none at all.
    pub if_none_match: String,
}

/// An ETag, with quotes or without, as conditions have it.
fn etags(etag: &str) -> Vec<String> {
    if etag.is_empty() { Vec::new() } else { vec![etag.trim_matches('"').to_owned()] }
}

fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.trim() == text
}

/// Text that HTTP headers can hold.
fn checked_metadata(metadata: BTreeMap<String, String>) -> Result<Vec<(String, String)>, &'static str> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if !metadata.iter().all(|(name, value)| is_name(name) && is_header_value(value)) {
        return Err("metadata has names of letters, digits, '-', '_' and '.', and values of visible ASCII");
    }
    if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_BYTES {
        return Err("metadata has at most 2 KiB");
    }
    Ok(metadata.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
}

impl FunctionPut {
    /// The operation that writes so many bytes.
    ///
    /// # Errors
    /// What is wrong with what was given. `content_type` is what the caller's language calls that.
    pub fn operation(self, content_type: &str, body_bytes: usize) -> Result<ObjectOperation, String> {
        if self.content_type.len() > CONTENT_TYPE_BYTES || !is_header_value(&self.content_type) {
            return Err(format!("{content_type} is at most 255 bytes of visible ASCII"));
        }
        let headers = (!self.content_type.is_empty()).then(|| ("content-type".to_owned(), self.content_type));
        let put = PutInput {
            input: UploadInput {
                headers: headers.into_iter().collect(),
                metadata: checked_metadata(self.metadata)?,
                ..UploadInput::default()
            },
            // The engine of objects hashes it.
            body: WrittenBody { length: body_bytes as u64, ..WrittenBody::default() },
            conditions: WriteConditions {
                if_match: etags(&self.if_match),
                if_none_match: etags(&self.if_none_match),
                ..WriteConditions::default()
            },
            ..PutInput::default()
        };
        Ok(ObjectOperation::Put(Box::new(put)))
    }

    /// Whether a function may write so many bytes: they travel in the transaction's entry.
    ///
    /// # Errors
    /// `size-limit`.
    pub fn check_body(body_bytes: usize) -> Result<(), Error> {
        if body_bytes <= limits::OBJECT_WRITE_BYTES {
            return Ok(());
        }
        let message = format!(
            "a function writes objects of at most {} bytes, not {body_bytes}: larger ones come over S3",
            limits::OBJECT_WRITE_BYTES
        );
        Err(Error::new(ErrorCode::SizeLimit, message))
    }
}

impl ObjectOperation {
    /// A function reads an object with its content.
    #[must_use]
    pub fn function_get() -> Self {
        Self::GetWhole(ReadConditions::default())
    }

    /// A function reads what an object is.
    #[must_use]
    pub fn function_head() -> Self {
        Self::Get(ReadConditions { is_head: true, ..ReadConditions::default() })
    }

    /// A function deletes an object, with an ETag only the one that has it.
    #[must_use]
    pub fn function_delete(if_match: &str) -> Self {
        let conditions = WriteConditions { if_match: etags(if_match), ..WriteConditions::default() };
        Self::Delete(DeleteOne { conditions, ..DeleteOne::default() })
    }

    /// A function reads a page of a bucket's list. No limit is the highest.
    ///
    /// # Errors
    /// The limit is out of bounds.
    pub fn function_list(request: ListRequest, limit: Option<i64>) -> Result<Self, String> {
        let most = limits::MOST_PAGE_ITEMS as u16;
        let limit = match limit {
            None => Some(most),
            Some(limit) => u16::try_from(limit).ok().filter(|limit| (1..=most).contains(limit)),
        };
        let limit = limit.ok_or_else(|| format!("limit must be a whole number from 1 to {most}"))?;
        Ok(Self::List(ListRequest { limit, ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(change: impl FnOnce(&mut FunctionPut)) -> Result<ObjectOperation, String> {
        let mut put = FunctionPut::default();
        change(&mut put);
        put.operation("content_type", 1)
    }

    #[test]
    fn what_headers_cannot_hold_is_refused() {
        assert!(put(|_| {}).is_ok());
        let content_type = put(|put| put.content_type = "text/html\r\nx: y".into());
        assert_eq!(content_type, Err("content_type is at most 255 bytes of visible ASCII".to_owned()));
        for (name, value) in [("", "x"), ("a b", "x"), ("a", "\n"), ("a", " x"), ("a", "\u{fc}")] {
            assert!(put(|put| put.metadata = [(name.into(), value.into())].into()).is_err(), "{name:?} {value:?}");
        }
        assert!(put(|put| put.metadata = [("a".into(), "x".repeat(2047))].into()).is_ok());
        assert!(put(|put| put.metadata = [("a".into(), "x".repeat(2048))].into()).is_err());
    }

    #[test]
    fn a_page_has_bounds() {
        let list = |limit| ObjectOperation::function_list(ListRequest::default(), limit);
        assert_eq!(list(None), list(Some(1000)));
        assert!(list(Some(1)).is_ok());
        for limit in [0, -1, 1001, 1 << 40] {
            assert_eq!(list(Some(limit)), Err("limit must be a whole number from 1 to 1000".to_owned()));
        }
    }

    #[test]
    fn a_body_has_a_bound() {
        assert_eq!(FunctionPut::check_body(limits::OBJECT_WRITE_BYTES), Ok(()));
        let refused = FunctionPut::check_body(limits::OBJECT_WRITE_BYTES + 1).expect_err("too large");
        assert_eq!(refused.code, ErrorCode::SizeLimit);
    }
}
