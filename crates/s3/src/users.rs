//! Who is known to this server, as a front needs it. Whoever keeps users implements it.

/// Users and their keys.
pub trait Users: Clone + 'static {
    /// Whether all users are known. A node of a cluster that has just started has yet to hear of them.
    fn are_known(&self) -> bool {
        true
    }

    /// The user that an access key belongs to, with the key's secret. Costs a look into memory.
    fn find(&self, access_key: &str) -> Option<KnownUser>;

    /// The display name of a canonical id.
    fn display_name(&self, id: &str) -> Option<String>;

    /// The canonical id of the user of this name.
    fn id_of_name(&self, name: &str) -> Option<String>;

    /// The canonical id of whoever has this e-mail address.
    fn id_of_email(&self, email: &str) -> Option<String>;
}

/// Whose a key is.
#[derive(Clone, PartialEq, Eq)]
pub struct KnownUser {
    /// The canonical id.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The key's secret.
    pub secret: String,
}

impl std::fmt::Debug for KnownUser {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets do not go into logs.
        formatter.debug_struct("KnownUser").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
