//! Everything that was measured, in one file; each part may be measured again by itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::memory::Memory;
use super::micro::Micro;
use super::page;
use super::scaling::Scaling;
use crate::Outcome;
use crate::table::Table;

/// All parts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Document {
    /// The comparisons, if they were measured.
    pub table: Option<Table>,
    /// By server threads, if it was measured.
    pub scaling: Option<Scaling>,
    /// Of many records, if it was measured.
    pub memory: Option<Memory>,
    /// Of paths and codecs, if they were measured.
    pub micro: Option<Micro>,
}

const NAME: &str = "records";

impl Document {
    /// What was published before; nothing if that cannot be read.
    #[must_use]
    pub fn published(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join(format!("{NAME}.json"))).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Writes the page, the data and the plot.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Outcome<()> {
        let failed = |error: std::io::Error| format!("cannot write results to {}: {error}", folder.display());
        std::fs::create_dir_all(folder.join("plots")).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let write = |name: String, text: String| std::fs::write(folder.join(name), text).map_err(failed);
        write(format!("{NAME}.json"), json + "\n")?;
        write(format!("{NAME}.md"), page::markdown(self))?;
        match &self.scaling {
            Some(scaling) => write(format!("plots/{NAME}-threads.svg"), scaling.plot()),
            None => Ok(()),
        }
    }
}
