//! A bucket's settings as every request needs them, read once and kept as long as they stay the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use millrace_api::objects::{Configuration, LifecycleConfiguration};
use millrace_base::{Error, Value};

use crate::access::Policy;
use crate::access::acl::Rules;
use crate::lifecycle;
use crate::rows::{BucketRow, LIFECYCLE, POLICY, from_value};
use crate::wire::SettingsOutput;

/// Buckets whose settings a core keeps. Each takes a few hundred bytes, and a policy up to some hundred KB.
const KEPT: usize = 1000;

/// A bucket's settings.
pub(crate) struct Settings {
    pub row: BucketRow,
    pub policy_text: Option<String>,
    pub policy: Option<Rc<Policy>>,
    pub lifecycle: Option<LifecycleConfiguration>,
    /// Milliseconds of a day of lifecycle rules.
    pub day_ms: u64,
}

impl Settings {
    /// What vanishes when, if there are rules.
    pub(crate) fn lifecycle_rules(&self) -> Option<lifecycle::Rules<'_>> {
        self.lifecycle.as_ref().map(|configuration| lifecycle::Rules { configuration, day_ms: self.day_ms })
    }

    /// Who owns new objects, and which access lists are refused or do not count.
    pub(crate) fn rules(&self) -> Rules {
        Rules { ownership: self.row.ownership.unwrap_or_default(), block: self.row.public_access.unwrap_or_default() }
    }

    /// To tell another entity.
    pub(crate) fn output(&self) -> SettingsOutput {
        SettingsOutput { row: self.row.clone(), policy: self.policy_text.clone(), lifecycle: self.lifecycle.clone() }
    }
}

/// Settings by bucket, with the row that they were read from: where the row is another, they are read again.
pub(crate) struct SettingsCache {
    day_ms: u64,
    known: RefCell<BTreeMap<String, (Value, Rc<Settings>)>>,
    /// Policies by their number: entities tell each other the text, which one write needs several times.
    policies: RefCell<BTreeMap<u64, Rc<Policy>>>,
}

impl SettingsCache {
    /// With the milliseconds of a day of lifecycle rules.
    pub(crate) fn new(day_ms: u64) -> Self {
        Self { day_ms: day_ms.max(1), known: RefCell::default(), policies: RefCell::default() }
    }

    /// Settings as another entity was told them.
    pub(crate) fn told(&self, output: SettingsOutput) -> Rc<Settings> {
        let policy = match (output.row.policy_number, output.policy.as_deref()) {
            (Some(number), Some(text)) => Some(self.policy(number, text)),
            _ => None,
        };
        let (row, policy_text, lifecycle, day_ms) = (output.row, output.policy, output.lifecycle, self.day_ms);
        Rc::new(Settings { row, policy, policy_text, lifecycle, day_ms })
    }

    fn policy(&self, number: u64, text: &str) -> Rc<Policy> {
        let mut policies = self.policies.borrow_mut();
        if policies.len() >= KEPT && !policies.contains_key(&number) {
            policies.clear();
        }
        Rc::clone(policies.entry(number).or_insert_with(|| Rc::new(Policy::kept(text))))
    }

    /// The settings in a row. `field` reads another field; it is asked only for a row that is not known.
    ///
    /// # Errors
    /// Those of `field`, and `internal` for a row that cannot be read.
    pub(crate) fn read(
        &self,
        bucket: &str,
        row: &Value,
        mut field: impl FnMut(&[u8]) -> Result<Option<Option<Value>>, Error>,
    ) -> Result<Option<Rc<Settings>>, Error> {
        if let Some((known, settings)) = self.known.borrow().get(bucket)
            && known.encoded() == row.encoded()
        {
            return Ok(Some(Rc::clone(settings)));
        }
        let read = BucketRow::from_value(row)?;
        let mut policy_text = None;
        if read.policy_number.is_some() {
            let Some(found) = field(POLICY)? else { return Ok(None) };
            policy_text = found.map(|value| String::from_utf8_lossy(value.content()).into_owned());
        }
        let mut lifecycle = None;
        if read.lifecycle_number.is_some() {
            let Some(found) = field(LIFECYCLE)? else { return Ok(None) };
            if let Some(Configuration::Lifecycle(rules)) = found.as_ref().map(from_value).transpose()? {
                lifecycle = Some(rules);
            }
        }
        let settings = self.told(SettingsOutput { row: read, policy: policy_text, lifecycle });
        let mut known = self.known.borrow_mut();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(bucket.to_owned(), (row.clone(), Rc::clone(&settings)));
        Ok(Some(settings))
    }
}
