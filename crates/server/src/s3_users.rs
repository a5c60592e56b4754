//! The users that this server keeps, as the S3 front wants to know them.

use std::rc::Rc;

use millrace_access::UsersView;
use millrace_node::CoreHandle;
use millrace_s3::users::{KnownUser, Users};

/// One core's view of the users.
#[derive(Clone)]
pub(crate) struct S3Users(Rc<UsersView>, CoreHandle);

impl S3Users {
    pub(crate) fn new(view: UsersView, node: CoreHandle) -> Self {
        Self(Rc::new(view), node)
    }
}

impl Users for S3Users {
    fn are_known(&self) -> bool {
        self.1.is_guided()
    }

    fn find(&self, access_key: &str) -> Option<KnownUser> {
        let found = self.0.find(access_key)?;
        Some(KnownUser {
            id: found.identity.id.clone(),
            name: found.identity.name.clone(),
            secret: found.secret.as_ref().to_owned(),
        })
    }

    fn display_name(&self, id: &str) -> Option<String> {
        self.0.of_id(id).map(|identity| identity.name.clone())
    }

    fn id_of_name(&self, name: &str) -> Option<String> {
        self.0.of_name(name).map(|identity| identity.id.clone())
    }

    fn id_of_email(&self, email: &str) -> Option<String> {
        self.0.of_email(email).map(|identity| identity.id.clone())
    }
}
