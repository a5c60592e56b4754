//! Which apps another version was deployed of since a shard last looked.

use std::collections::BTreeSet;

use millrace_base::Name;
use millrace_func::{Catalog, Program};

/// What a shard has seen of deployments.
#[derive(Default)]
pub(crate) struct Deployed {
    /// What was served when it was last looked at; `None` before the first look, which is at a start of the node.
    looked_at: Option<Vec<(Name, Program)>>,
}

impl Deployed {
    /// Apps that have another version now, and want that what was given up goes on then.
    pub(crate) fn resumed(&mut self, catalog: &Catalog) -> BTreeSet<Name> {
        let is_same = self
            .looked_at
            .as_ref()
            .is_some_and(|known| known.iter().map(|(name, program)| (name, *program)).eq(catalog.apps()));
        if is_same {
            return BTreeSet::new();
        }
        let now: Vec<(Name, Program)> = catalog.apps().map(|(name, program)| (name.clone(), program)).collect();
        let before = self.looked_at.replace(now.clone());
        let Some(before) = before else {
            return BTreeSet::new();
        };
        let wants = |program: Program| catalog.program(program).is_some_and(|loaded| loaded.retry.resume_on_deploy);
        let is_new =
            |(name, program): &(Name, Program)| !before.iter().any(|known| (&known.0, &known.1) == (name, program));
        now.into_iter().filter(|row| is_new(row) && wants(row.1)).map(|(name, _)| name).collect()
    }
}
