//! Parameters of lists.

use millrace_api::objects::{ListRequest, ObjectOperation};

use super::Head;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::xml::Encoding;
use crate::xml::lists::{ListForm, from_token};
use crate::xml::uploads::Attributes;

fn text(head: &Head<'_>, name: &str) -> String {
    head.query.get(name).unwrap_or_default().to_owned()
}

/// A count between 0 and what a page has at most.
fn count(head: &Head<'_>, name: &'static str, most: u16) -> Result<u16, S3Error> {
    let Some(value) = head.query.get(name).filter(|value| !value.is_empty()) else { return Ok(most) };
    match value.parse::<i64>() {
        Ok(number) if (0..=i64::from(i32::MAX)).contains(&number) => {
            Ok(u16::try_from(number).unwrap_or(most).min(most))
        }
        _ => {
            let message = format!("Argument {name} must be an integer between 0 and 2147483647");
            let error = S3Error::new(Code::InvalidArgument, message);
            Err(error.with("ArgumentName", name).with("ArgumentValue", value))
        }
    }
}

fn encoding(head: &Head<'_>) -> Result<Encoding, S3Error> {
    match head.query.get("encoding-type") {
        None | Some("") => Ok(Encoding::None),
        Some(value) if value.eq_ignore_ascii_case("url") => Ok(Encoding::Url),
        Some(value) => Err(S3Error::new(Code::InvalidArgument, "Invalid Encoding Method specified in Request")
            .with("ArgumentName", "encoding-type")
            .with("ArgumentValue", value)),
    }
}

fn common(head: &Head<'_>, limit_name: &'static str) -> Result<(ListRequest, ListForm), S3Error> {
    let limit = count(head, limit_name, limits::PAGE_ITEMS)?;
    let delimiter = text(head, "delimiter");
    let form = ListForm {
        encoding: encoding(head)?,
        shows_delimiter: !delimiter.is_empty(),
        max_keys: limit,
        ..ListForm::default()
    };
    Ok((ListRequest { prefix: text(head, "prefix"), delimiter, limit, ..ListRequest::default() }, form))
}

/// Of `ListBuckets`.
///
/// # Errors
/// `InvalidArgument`.
pub fn buckets(head: &Head<'_>) -> Result<ListRequest, S3Error> {
    // All buckets are in this server's region. S3 answers only for the region that is asked.
    if let Some(region) = head.query.get("bucket-region").filter(|region| *region != head.region) {
        return Err(S3Error::new(Code::InvalidArgument, "This server has no buckets of the region that is asked for.")
            .with("ArgumentName", "bucket-region")
            .with("ArgumentValue", region));
    }
    Ok(ListRequest {
        prefix: text(head, "prefix"),
        after: token(head)?.unwrap_or_default(),
        limit: count(head, "max-buckets", limits::PAGE_BUCKETS)?,
        ..ListRequest::default()
    })
}

fn token(head: &Head<'_>) -> Result<Option<String>, S3Error> {
    // An empty one is none, as for the other markers.
    let Some(token) = head.query.get("continuation-token").filter(|token| !token.is_empty()) else { return Ok(None) };
    let position = from_token(token).filter(|position| !position.is_empty());
    position.map(Some).ok_or_else(|| {
        S3Error::new(Code::InvalidArgument, "The continuation token provided is incorrect")
            .with("ArgumentName", "continuation-token")
    })
}

/// Of `ListObjects`.
///
/// # Errors
/// `InvalidArgument`.
pub fn objects(head: &Head<'_>) -> Result<(ListRequest, ListForm), S3Error> {
    let (mut request, mut form) = common(head, "max-keys")?;
    request.after = text(head, "marker");
    form.marker.clone_from(&request.after);
    Ok((request, form))
}

/// Of `ListObjectsV2`.
///
/// # Errors
/// `InvalidArgument`.
pub fn objects_second(head: &Head<'_>) -> Result<(ListRequest, ListForm), S3Error> {
    let (mut request, mut form) = common(head, "max-keys")?;
    let after = token(head)?;
    form.is_second = true;
    form.fetch_owner = head.query.get("fetch-owner").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    form.token = head.query.get("continuation-token").map(str::to_owned);
    form.start_after = head.query.get("start-after").map(str::to_owned);
    request.after = after.or_else(|| form.start_after.clone()).unwrap_or_default();
    Ok((request, form))
}

/// Of `ListObjectVersions`.
///
/// # Errors
/// `InvalidArgument`.
pub fn versions(head: &Head<'_>) -> Result<(ListRequest, ListForm), S3Error> {
    let (mut request, mut form) = common(head, "max-keys")?;
    markers(head, "version-id-marker", &mut request, &mut form)?;
    Ok((request, form))
}

/// Of `ListMultipartUploads`.
///
/// # Errors
/// `InvalidArgument`.
pub fn uploads(head: &Head<'_>) -> Result<(ListRequest, ListForm), S3Error> {
    let (mut request, mut form) = common(head, "max-uploads")?;
    markers(head, "upload-id-marker", &mut request, &mut form)?;
    Ok((request, form))
}

fn markers(head: &Head<'_>, id: &str, request: &mut ListRequest, form: &mut ListForm) -> Result<(), S3Error> {
    request.after = text(head, "key-marker");
    request.after_id = text(head, id);
    if !request.after_id.is_empty() && request.after.is_empty() && id == "version-id-marker" {
        let message = "A version-id marker cannot be specified without a key marker.";
        return Err(S3Error::new(Code::InvalidArgument, message));
    }
    // An upload's id counts only beside a key.
    if request.after.is_empty() {
        request.after_id.clear();
    }
    form.marker.clone_from(&request.after);
    form.id_marker.clone_from(&request.after_id);
    Ok(())
}

/// Behind which number parts are wanted, and how many.
///
/// # Errors
/// `InvalidArgument`.
pub fn parts_page(head: &Head<'_>) -> Result<(u16, u16), S3Error> {
    Ok((numbered(head.query.get("part-number-marker"))?, count(head, "max-parts", limits::PAGE_ITEMS)?))
}

fn numbered(text: Option<&str>) -> Result<u16, S3Error> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(0),
        Some(text) => match text.parse::<u32>() {
            Ok(number) if number <= i32::MAX as u32 => Ok(u16::try_from(number).unwrap_or(u16::MAX)),
            _ => Err(S3Error::new(
                Code::InvalidArgument,
                "Argument part-number-marker must be an integer between 0 and 2147483647",
            )),
        },
    }
}

/// `ListParts`.
///
/// # Errors
/// `InvalidArgument`.
pub fn parts(head: &Head<'_>) -> Result<ObjectOperation, S3Error> {
    encoding(head)?;
    let (after, limit) = parts_page(head)?;
    Ok(ObjectOperation::ListParts { upload: head.upload(), after, limit })
}

/// `GetObjectAttributes`, and what of it is wanted.
///
/// # Errors
/// `InvalidArgument`.
pub fn attributes(head: &Head<'_>) -> Result<(ObjectOperation, Attributes), S3Error> {
    let invalid = |message: &str| S3Error::new(Code::InvalidArgument, message);
    let mut wanted = Attributes::default();
    let mut count_named = 0;
    for value in head.headers.get_all("x-amz-object-attributes") {
        for name in value.to_str().unwrap_or("?").split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let field = match name {
                "ETag" => &mut wanted.etag,
                "Checksum" => &mut wanted.checksum,
                "ObjectParts" => &mut wanted.parts,
                "StorageClass" => &mut wanted.storage_class,
                "ObjectSize" => &mut wanted.size,
                _ => return Err(invalid("Invalid attribute name specified.")),
            };
            *field = true;
            count_named += 1;
        }
    }
    if count_named == 0 {
        let message = "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or \
                       empty";
        return Err(S3Error::new(Code::InvalidRequest, message));
    }
    let max_parts = match head.header("x-amz-max-parts")? {
        None => limits::PAGE_ITEMS,
        Some(text) => {
            let number: u32 = text.parse().map_err(|_| invalid("The header x-amz-max-parts is no number."))?;
            u16::try_from(number).unwrap_or(u16::MAX).min(limits::PAGE_ITEMS)
        }
    };
    let parts_after = numbered(head.header("x-amz-part-number-marker")?)?;
    Ok((ObjectOperation::GetAttributes { version: head.version()?, parts_after, max_parts }, wanted))
}
