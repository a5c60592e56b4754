//! What S3 lets nobody do without a signature, whatever the policy and the access lists say.
//!
//! Who begins an upload or grants something is written down, and without a signature there is nobody to write down.

use millrace_api::objects::{Configuration, ConfigurationKind, ObjectOperation};

/// Why nobody may do this without a signature; `None`: policy and lists decide.
pub(crate) fn refusal(operation: &ObjectOperation) -> Option<&'static str> {
    match operation {
        ObjectOperation::CreateUpload(_) => {
            Some("Anonymous users cannot initiate multipart uploads.  Please authenticate.")
        }
        ObjectOperation::GetSource(_) => Some("Anonymous users cannot copy objects.  Please authenticate"),
        ObjectOperation::PutAccess { .. }
        | ObjectOperation::GetConfiguration(ConfigurationKind::Ownership)
        | ObjectOperation::DeleteConfiguration(ConfigurationKind::Ownership)
        | ObjectOperation::PutConfiguration {
            configuration: Configuration::Access(_) | Configuration::Ownership(_),
            ..
        } => Some("Anonymous users cannot invoke this API. Please authenticate."),
        _ => None,
    }
}
