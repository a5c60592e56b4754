//! The other settings of a bucket, and the lock of an object.

use millrace_api::objects::{
    Configuration, ConfigurationKind, CorsConfiguration, CorsRule, DefaultRetention, ObjectLock, Retention,
    RetentionMode, RetentionPeriod, Versioning,
};

use super::{Element, Writer, access, lifecycle, notification, read, tagging};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::times;

const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// Reads the document of a setting. Access lists and policies have their own ways.
///
/// # Errors
/// `MalformedXML` and what the kind of document documents.
pub fn read_configuration(kind: ConfigurationKind, document: &[u8]) -> Result<Configuration, S3Error> {
    Ok(match kind {
        ConfigurationKind::Versioning => Configuration::Versioning(read_versioning(document)?),
        ConfigurationKind::Cors => Configuration::Cors(read_cors(document)?),
        ConfigurationKind::Lifecycle => Configuration::Lifecycle(lifecycle::read_lifecycle(document)?),
        ConfigurationKind::Tagging => Configuration::Tagging(tagging::read_tags(document, limits::BUCKET_TAGS)?),
        ConfigurationKind::Ownership => Configuration::Ownership(access::read_ownership(document)?),
        ConfigurationKind::PublicAccess => Configuration::PublicAccess(access::read_public_access(document)?),
        ConfigurationKind::ObjectLock => Configuration::ObjectLock(read_object_lock(document)?),
        ConfigurationKind::Notification => Configuration::Notification(notification::read_notification(document)?),
        ConfigurationKind::RequestPayment => Configuration::RequestPayment(read_payment(document)?),
        ConfigurationKind::Policy => Configuration::Policy(read_policy(document)?),
        // It needs to know users.
        ConfigurationKind::Access => return Err(Code::InternalError.into()),
    })
}

fn read_policy(document: &[u8]) -> Result<String, S3Error> {
    if document.len() > limits::POLICY_BYTES {
        return Err(S3Error::new(Code::PolicyTooLarge, "Policies must be at most 20 KB in size"));
    }
    let text = std::str::from_utf8(document).map_err(|_| S3Error::from(Code::MalformedPolicy))?;
    if text.trim().is_empty() {
        return Err(Code::MissingRequestBody.into());
    }
    Ok(text.to_owned())
}

fn read_versioning(document: &[u8]) -> Result<Versioning, S3Error> {
    let root = read(document, "VersioningConfiguration")?;
    match root.text_of("MfaDelete").map(str::trim) {
        None | Some("Disabled") => {}
        Some("Enabled") => return Err(S3Error::new(Code::NotImplemented, "MFA delete is not implemented.")),
        Some(_) => return Err(Code::MalformedXml.into()),
    }
    match root.text_of("Status").map(str::trim) {
        Some("Enabled") => Ok(Versioning::Enabled),
        Some("Suspended") => Ok(Versioning::Suspended),
        _ => Err(S3Error::new(Code::MalformedXml, "The Versioning element must be specified")),
    }
}

fn write_versioning(versioning: Versioning) -> String {
    let mut writer = Writer::new("VersioningConfiguration");
    match versioning {
        Versioning::Off => {}
        Versioning::Enabled => drop(writer.text("Status", "Enabled")),
        Versioning::Suspended => drop(writer.text("Status", "Suspended")),
    }
    writer.finish()
}

fn read_cors(document: &[u8]) -> Result<CorsConfiguration, S3Error> {
    let root = read(document, "CORSConfiguration")?;
    let mut rules = Vec::new();
    for element in root.all("CORSRule") {
        if rules.len() == limits::CORS_RULES {
            return Err(S3Error::new(Code::InvalidRequest, "The number of CORS rules should not exceed allowed limit"));
        }
        rules.push(read_cors_rule(element)?);
    }
    if rules.is_empty() { Err(Code::MalformedXml.into()) } else { Ok(CorsConfiguration { rules }) }
}

fn read_cors_rule(element: &Element) -> Result<CorsRule, S3Error> {
    let texts = |name| element.all(name).map(|child| child.text.trim().to_owned()).collect::<Vec<_>>();
    let rule = CorsRule {
        id: element.text_of("ID").map(str::to_owned),
        allowed_methods: texts("AllowedMethod"),
        allowed_origins: texts("AllowedOrigin"),
        allowed_headers: texts("AllowedHeader"),
        expose_headers: texts("ExposeHeader"),
        max_age_s: element.number_of("MaxAgeSeconds")?,
    };
    if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
        return Err(Code::MalformedXml.into());
    }
    if let Some(method) = rule.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
        let message = format!("Found unsupported HTTP method in CORS config. Unsupported method is {method}");
        return Err(S3Error::new(Code::InvalidRequest, message));
    }
    let mut patterns = rule.allowed_origins.iter().chain(&rule.allowed_headers);
    if let Some(pattern) = patterns.find(|pattern| pattern.matches('*').count() > 1) {
        let message = format!("\"{pattern}\" can not have more than one wildcard.");
        return Err(S3Error::new(Code::InvalidRequest, message));
    }
    Ok(rule)
}

fn write_cors(configuration: &CorsConfiguration) -> String {
    let mut writer = Writer::new("CORSConfiguration");
    for rule in &configuration.rules {
        writer.open("CORSRule").some("ID", rule.id.as_deref());
        let lists = [
            ("AllowedMethod", &rule.allowed_methods),
            ("AllowedOrigin", &rule.allowed_origins),
            ("AllowedHeader", &rule.allowed_headers),
        ];
        for (name, text) in lists.iter().flat_map(|(name, list)| list.iter().map(move |text| (name, text))) {
            writer.text(name, text);
        }
        if let Some(seconds) = rule.max_age_s {
            writer.value("MaxAgeSeconds", seconds);
        }
        for header in &rule.expose_headers {
            writer.text("ExposeHeader", header);
        }
        writer.close();
    }
    writer.finish()
}

fn read_mode(text: &str) -> Result<RetentionMode, S3Error> {
    match text.trim() {
        "GOVERNANCE" => Ok(RetentionMode::Governance),
        "COMPLIANCE" => Ok(RetentionMode::Compliance),
        _ => Err(Code::MalformedXml.into()),
    }
}

/// The mode's name.
#[must_use]
pub fn mode_name(mode: RetentionMode) -> &'static str {
    match mode {
        RetentionMode::Governance => "GOVERNANCE",
        RetentionMode::Compliance => "COMPLIANCE",
    }
}

fn read_object_lock(document: &[u8]) -> Result<ObjectLock, S3Error> {
    let root = read(document, "ObjectLockConfiguration")?;
    if root.needed("ObjectLockEnabled")?.trim() != "Enabled" {
        return Err(Code::MalformedXml.into());
    }
    let Some(rule) = root.child("Rule") else { return Ok(ObjectLock::default()) };
    let element = rule.child("DefaultRetention").ok_or(Code::MalformedXml)?;
    let mode = read_mode(element.needed("Mode")?)?;
    let period = match (element.child("Days"), element.child("Years")) {
        (Some(days), None) => RetentionPeriod::Days(period(days)?),
        (None, Some(years)) => RetentionPeriod::Years(period(years)?),
        _ => return Err(Code::MalformedXml.into()),
    };
    Ok(ObjectLock { default_retention: Some(DefaultRetention { mode, period }) })
}

/// At most a hundred years, as S3 documents it.
fn period(element: &Element) -> Result<u32, S3Error> {
    const DAYS: i64 = 36_500;
    const YEARS: i64 = 100;
    let number: i64 = element.number()?;
    let most = if element.name == "Years" { YEARS } else { DAYS };
    match u32::try_from(number) {
        Ok(count) if count > 0 && number <= most => Ok(count),
        _ => Err(S3Error::new(
            Code::InvalidRetentionPeriod,
            format!("Default retention period must be a positive integer value of at most {most} {}", element.name),
        )),
    }
}

fn write_object_lock(lock: &ObjectLock) -> String {
    let mut writer = Writer::new("ObjectLockConfiguration");
    writer.text("ObjectLockEnabled", "Enabled");
    if let Some(retention) = lock.default_retention {
        writer.open("Rule").open("DefaultRetention").text("Mode", mode_name(retention.mode));
        match retention.period {
            RetentionPeriod::Days(days) => writer.value("Days", days),
            RetentionPeriod::Years(years) => writer.value("Years", years),
        };
    }
    writer.finish()
}

fn read_payment(document: &[u8]) -> Result<bool, S3Error> {
    match read(document, "RequestPaymentConfiguration")?.needed("Payer")?.trim() {
        "Requester" => Ok(true),
        "BucketOwner" => Ok(false),
        _ => Err(Code::MalformedXml.into()),
    }
}

/// Reads `Retention`. An empty one takes it away.
///
/// # Errors
/// `MalformedXML`.
pub fn read_retention(document: &[u8]) -> Result<Option<Retention>, S3Error> {
    let root = read(document, "Retention")?;
    if root.children.is_empty() {
        return Ok(None);
    }
    let mode = read_mode(root.needed("Mode")?)?;
    let until_ms = times::parse_iso(root.needed("RetainUntilDate")?).ok_or(Code::MalformedXml)?;
    Ok(Some(Retention { mode, until_ms }))
}

/// Writes `Retention`.
#[must_use]
pub fn write_retention(retention: &Retention) -> String {
    let mut writer = Writer::new("Retention");
    writer.text("Mode", mode_name(retention.mode)).text("RetainUntilDate", &times::iso(retention.until_ms));
    writer.finish()
}

/// Reads `LegalHold`.
///
/// # Errors
/// `MalformedXML`.
pub fn read_legal_hold(document: &[u8]) -> Result<bool, S3Error> {
    match read(document, "LegalHold")?.needed("Status")?.trim() {
        "ON" => Ok(true),
        "OFF" => Ok(false),
        _ => Err(Code::MalformedXml.into()),
    }
}

/// Writes `LegalHold`.
#[must_use]
pub fn write_legal_hold(is_held: bool) -> String {
    let mut writer = Writer::new("LegalHold");
    writer.text("Status", if is_held { "ON" } else { "OFF" });
    writer.finish()
}

/// Writes the document of a setting.
#[must_use]
pub fn write_configuration(configuration: &Configuration, users: &impl crate::users::Users) -> String {
    match configuration {
        Configuration::Versioning(versioning) => write_versioning(*versioning),
        Configuration::Cors(cors) => write_cors(cors),
        Configuration::Lifecycle(lifecycle) => lifecycle::write_lifecycle(lifecycle),
        Configuration::Policy(text) => text.clone(),
        Configuration::Tagging(tags) => tagging::write_tags(tags),
        Configuration::Access(millrace_api::objects::AccessInput::List(list)) => access::write_list(list, users),
        Configuration::Access(_) => access::write_list(&millrace_api::objects::AccessList::default(), users),
        Configuration::Ownership(ownership) => access::write_ownership(*ownership),
        Configuration::PublicAccess(block) => access::write_public_access(block),
        Configuration::ObjectLock(lock) => write_object_lock(lock),
        Configuration::Notification(rules) => notification::write_notification(rules),
        Configuration::RequestPayment(is_requester) => {
            let mut writer = Writer::new("RequestPaymentConfiguration");
            writer.text("Payer", if *is_requester { "Requester" } else { "BucketOwner" });
            writer.finish()
        }
    }
}
