//! What recovery does where a stream stops being readable: the table of `docs/internals/recovery.md`.
//!
//! One batch is in flight at a time. Every batch says up to which batch all were durable when it was written. So if a
//! later batch knows an unreadable one to be durable, the unreadable one was acknowledged and has been damaged since.
//! If no later batch knows of it, it was never acknowledged.

/// What lies at the place of the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No header of the next batch: zeros, bytes of an earlier use of the file, damaged bytes, or the end of the file.
    NoBatch,
    /// The next batch's header, intact, but not all of its entries.
    BadBatch,
}

/// What later batches of the stream say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// There is no later batch.
    None,
    /// None of them was written after the missing one was durable.
    Unsynced,
    /// One of them was.
    Synced,
}

/// Everything the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) found: Found,
    pub(crate) later: Later,
    /// The stream had its closing batch. Either a later run exists, which began by closing this stream. Or the file was
    /// cut to its end, which happens only after closing.
    pub(crate) was_closed: bool,
    /// Exactly one block lies between the last good batch and the end of the file, as if the closing batch was there.
    pub(crate) is_lone_block: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The rest was never acknowledged: the stream ends here.
    Cut,
    /// The missing batch was acknowledged: refuse to start.
    Damage,
}

pub(crate) fn decide(facts: Facts) -> Decision {
    match facts.later {
        Later::Synced => Decision::Damage,
        Later::Unsynced | Later::None if !facts.was_closed => Decision::Cut,
        // Only the closing batch itself has decayed, and it holds no entries.
        Later::None if facts.found == Found::NoBatch && facts.is_lone_block => Decision::Cut,
        Later::Unsynced | Later::None => Decision::Damage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as documented; `None` stands for "either".
    type Row = (Option<Found>, Later, Option<bool>, Option<bool>, Decision);

    const TABLE: [Row; 7] = [
        (None, Later::Synced, None, None, Decision::Damage),
        (None, Later::Unsynced, Some(false), None, Decision::Cut),
        (None, Later::Unsynced, Some(true), None, Decision::Damage),
        (None, Later::None, Some(false), None, Decision::Cut),
        (Some(Found::NoBatch), Later::None, Some(true), Some(true), Decision::Cut),
        (Some(Found::NoBatch), Later::None, Some(true), Some(false), Decision::Damage),
        (Some(Found::BadBatch), Later::None, Some(true), None, Decision::Damage),
    ];

    fn matches(row: &Row, facts: Facts) -> bool {
        row.0.is_none_or(|found| found == facts.found)
            && row.1 == facts.later
            && row.2.is_none_or(|closed| closed == facts.was_closed)
            && row.3.is_none_or(|lone| lone == facts.is_lone_block)
    }

    #[test]
    fn every_case_is_in_exactly_one_row_and_decided_as_it_says() {
        let mut cases = 0;
        for found in [Found::NoBatch, Found::BadBatch] {
            for later in [Later::None, Later::Unsynced, Later::Synced] {
                for (was_closed, is_lone_block) in [(false, false), (false, true), (true, false), (true, true)] {
                    let facts = Facts { found, later, was_closed, is_lone_block };
                    let rows: Vec<_> = TABLE.iter().filter(|row| matches(row, facts)).collect();
                    assert_eq!(rows.len(), 1, "{facts:?}");
                    assert_eq!(decide(facts), rows[0].4, "{facts:?}");
                    cases += 1;
                }
            }
        }
        assert_eq!(cases, 24);
    }
}
