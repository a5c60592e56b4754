//! Who signed a form's policy.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use super::{Form, Policy};
use crate::error::{Code, S3Error};
use crate::signature::{Credential, FindKey, KnownKey, Rules, SigningKeys, date, unsupported};

/// A form whose policy's signature is right, and whose fields the policy allows.
#[derive(Clone, Debug)]
pub struct PostSigned<I> {
    /// The name of the key.
    pub access_key: String,
    /// Who it stands for.
    pub identity: I,
    /// The policy. The file's size is yet to be checked.
    pub policy: Policy,
}

/// Checks a form for this bucket at this time, in Unix seconds. `None` is a form that nobody signed.
///
/// # Errors
///
/// With the code that S3 documents.
pub fn verify<I>(
    form: &Form,
    bucket: &str,
    now_s: u64,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<Option<PostSigned<I>>, S3Error> {
    let is_version_4 =
        ["x-amz-algorithm", "x-amz-credential", "x-amz-signature"].iter().any(|name| form.get(name).is_some());
    let is_version_2 = form.get("awsaccesskeyid").is_some() || form.get("signature").is_some();
    let Some(text) = form.get("policy") else {
        return if is_version_4 || is_version_2 { Err(missing("policy")) } else { Ok(None) };
    };
    let (access_key, known) = match (is_version_4, is_version_2) {
        (true, _) => version_4(form, text, rules, keys, cache)?,
        (false, true) if rules.allows_version_2 => version_2(form, text, keys)?,
        (false, true) => return Err(unsupported()),
        (false, false) => return Err(missing("x-amz-algorithm")),
    };
    let json = STANDARD.decode(text.replace(['\r', '\n'], ""));
    let json = json.map_err(|_| S3Error::new(Code::InvalidPolicyDocument, "Invalid Policy: Invalid base64."))?;
    let policy = Policy::parse(&json)?;
    policy.check(form, bucket, now_s)?;
    Ok(Some(PostSigned { access_key: access_key.to_owned(), identity: known.identity, policy }))
}

fn version_4<'a, I>(
    form: &'a Form,
    policy: &str,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<(&'a str, KnownKey<I>), S3Error> {
    let field = |name: &'static str| form.get(name).ok_or_else(|| missing(name));
    match field("x-amz-algorithm")? {
        "AWS4-HMAC-SHA256" => {}
        "AWS4-ECDSA-P256-SHA256" => {
            return Err(S3Error::new(Code::NotImplemented, "Signatures with asymmetric keys are not implemented."));
        }
        _ => return Err(S3Error::new(Code::InvalidArgument, "The field x-amz-algorithm is not AWS4-HMAC-SHA256.")),
    }
    let refuse = |problem: &str| S3Error::new(Code::InvalidArgument, format!("x-amz-credential: {problem}"));
    let credential = Credential::parse(field("x-amz-credential")?, &rules.region, &refuse)?;
    let (timestamp, signature) = (field("x-amz-date")?, field("x-amz-signature")?);
    if date::parse(timestamp).is_none() || !timestamp.starts_with(credential.date) {
        return Err(S3Error::new(
            Code::InvalidArgument,
            "The field x-amz-date is not a time of the credential's date.",
        ));
    }
    let known = find(keys, credential.access_key)?;
    let key = cache.get(credential.access_key, &known.secret, credential.date, &rules.region);
    if !key.is_signed(policy.as_bytes(), signature) {
        return Err(Code::SignatureDoesNotMatch.into());
    }
    Ok((credential.access_key, known))
}

fn version_2<'a, I>(form: &'a Form, policy: &str, keys: &impl FindKey<I>) -> Result<(&'a str, KnownKey<I>), S3Error> {
    let access_key = form.get("awsaccesskeyid").ok_or_else(|| missing("AWSAccessKeyId"))?;
    let signature = form.get("signature").ok_or_else(|| missing("signature"))?;
    let known = find(keys, access_key)?;
    let signature = STANDARD.decode(signature).map_err(|_| S3Error::from(Code::SignatureDoesNotMatch))?;
    let mac = Hmac::<Sha1>::new_from_slice(known.secret.as_bytes()).expect("HMAC takes keys of any length");
    match mac.chain_update(policy).verify_slice(&signature) {
        Ok(()) => Ok((access_key, known)),
        Err(_) => Err(Code::SignatureDoesNotMatch.into()),
    }
}

fn find<I>(keys: &impl FindKey<I>, access_key: &str) -> Result<KnownKey<I>, S3Error> {
    keys.find(access_key).ok_or_else(|| S3Error::from(Code::InvalidAccessKeyId).with("AWSAccessKeyId", access_key))
}

fn missing(field: &'static str) -> S3Error {
    let message = format!("Bucket POST must contain a field named '{field}'.");
    S3Error::new(Code::InvalidArgument, message).with("ArgumentName", field)
}
