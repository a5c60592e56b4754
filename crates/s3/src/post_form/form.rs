//! The fields of a form.

use super::multipart::malformed;
use crate::error::{Code, S3Error};
use crate::signature::canonical;

/// What a browser sent beside the file. Names are in lower case: case does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    fields: Vec<(String, String)>,
    file_name: Option<String>,
    file_type: Option<String>,
}

/// What the browser is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Success {
    /// 303 to this address.
    Redirect(String),
    /// 200, 201 or 204.
    Status(u16),
}

impl Form {
    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// A field's value, by its name in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All fields, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The file's type: the field's if there is one, else that of the file's part.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.get("content-type").or(self.file_type.as_deref())
    }

    /// The key.
    ///
    /// # Errors
    ///
    /// If the form has none.
    pub fn key(&self) -> Result<&str, S3Error> {
        let key = self.get("key").filter(|key| !key.is_empty());
        key.ok_or_else(|| Code::UserKeyMustBeSpecified.into())
    }

    /// What to answer when `key` is stored. A redirect that is not an HTTP address is ignored.
    #[must_use]
    pub fn success(&self, bucket: &str, key: &str, etag: &str) -> Success {
        let address = self.get("success_action_redirect").or_else(|| self.get("redirect")).unwrap_or_default();
        let is_http = address.starts_with("http://") || address.starts_with("https://");
        if is_http && address.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
            let mut address = address.to_owned();
            address.push(if address.contains('?') { '&' } else { '?' });
            for (index, (name, value)) in [("bucket", bucket), ("key", key), ("etag", etag)].into_iter().enumerate() {
                address.push_str(if index > 0 { "&" } else { "" });
                address.push_str(name);
                address.push('=');
                canonical::encode(value.as_bytes(), false, &mut address);
            }
            return Success::Redirect(address);
        }
        match self.get("success_action_status") {
            Some("200") => Success::Status(200),
            Some("201") => Success::Status(201),
            _ => Success::Status(204),
        }
    }

    pub(super) fn push(&mut self, name: &str, value: String) -> Result<(), S3Error> {
        let name = name.to_ascii_lowercase();
        if self.get(&name).is_some() {
            return Err(malformed("A field was sent twice."));
        }
        self.fields.push((name, value));
        Ok(())
    }

    /// Puts the file's name where fields ask for it. The policy is checked against what comes of it.
    pub(super) fn file_began(&mut self, file_name: Option<String>, file_type: Option<String>) {
        // Some browsers send the whole path.
        let name = file_name.as_deref().and_then(|name| name.rsplit(['/', '\\']).next()).unwrap_or_default();
        for (field, value) in &mut self.fields {
            if field == "key" || field.starts_with("x-amz-meta-") || field == "success_action_redirect" {
                // A value has at most 20 KiB, a name 4 KiB: one place is enough for any honest form.
                *value = value.replacen("${filename}", name, 1);
            }
        }
        self.file_name = file_name;
        self.file_type = file_type;
    }
}
