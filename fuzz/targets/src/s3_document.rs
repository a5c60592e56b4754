//! XML documents of S3. The first byte says which. A setting that is read and written again is the same.

use millrace_api::objects::ConfigurationKind as Kind;
use millrace_s3::error::{Code, S3Error};
use millrace_s3::users::{KnownUser, Users};
use millrace_s3::xml::{access, configuration, delete, tagging, uploads};

/// Knows one user.
#[derive(Clone)]
pub(crate) struct Ann;

impl Users for Ann {
    fn find(&self, _: &str) -> Option<KnownUser> {
        None
    }

    fn display_name(&self, id: &str) -> Option<String> {
        (id == "0123").then(|| "ann".to_owned())
    }

    fn id_of_name(&self, name: &str) -> Option<String> {
        (name == "ann").then(|| "0123".to_owned())
    }

    fn id_of_email(&self, email: &str) -> Option<String> {
        (email == "ann@example.com").then(|| "0123".to_owned())
    }
}

const SETTINGS: [Kind; 8] = [
    Kind::Versioning,
    Kind::Cors,
    Kind::Lifecycle,
    Kind::Tagging,
    Kind::Ownership,
    Kind::PublicAccess,
    Kind::ObjectLock,
    Kind::Notification,
];

pub(crate) fn run(bytes: &[u8]) {
    let [which, document @ ..] = bytes else { return };
    match usize::from(*which) % 16 {
        8 => check(configuration::read_retention(document)),
        9 => check(configuration::read_legal_hold(document)),
        10 => check(delete::read_delete(document, false)),
        11 => check(tagging::read_tags(document, 10)),
        12 => check(uploads::read_complete(document)),
        13 => check(uploads::read_create_bucket(document, "us-east-1")),
        14 => check(access::read_list(document, &Ann)),
        15 => check(configuration::read_configuration(Kind::RequestPayment, document)),
        setting => round(SETTINGS[setting], document),
    }
}

fn round(kind: Kind, document: &[u8]) {
    match configuration::read_configuration(kind, document) {
        Ok(setting) => {
            let written = configuration::write_configuration(&setting, &Ann);
            match configuration::read_configuration(kind, written.as_bytes()) {
                Ok(again) => assert_eq!(again, setting, "{written}"),
                Err(error) => panic!("{kind:?}: {written}: {error:?}"),
            }
        }
        Err(error) => refused(&error),
    }
}

fn check<T>(read: Result<T, S3Error>) {
    if let Err(error) = read {
        refused(&error);
    }
}

fn refused(error: &S3Error) {
    assert!(!error.message.is_empty());
    assert_ne!(error.code, Code::InternalError);
}
