//! The last rows of a range, with a host that only goes forward.
//!
//! It takes names of fields as fractions, and halves the space between two of them until few rows lie in the upper
//! part. That is some tens of short scans, however many rows there are.

use millrace_base::Error;
use millrace_func::{Host, ScanRequest};

/// Rows between two bounds, neither included.
pub(crate) struct Between<'a> {
    /// The prefix of all of them.
    pub prefix: &'a [u8],
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

/// At most `wanted` rows, the last ones, the very last first.
pub(crate) fn last_rows(host: &mut dyn Host, mut between: Between<'_>, wanted: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut found: Vec<Vec<u8>> = Vec::with_capacity(wanted);
    while found.len() < wanted {
        let some = upper(host, &between, wanted - found.len())?;
        let Some(first) = some.first() else {
            break;
        };
        between.high.clone_from(first);
        found.extend(some.into_iter().rev());
    }
    found.truncate(wanted);
    Ok(found)
}

/// The rows behind some place that is not before `low`: at least one if there is any, and not many.
fn upper(host: &mut dyn Host, between: &Between<'_>, wanted: usize) -> Result<Vec<Vec<u8>>, Error> {
    let most = wanted.saturating_mul(2).max(16);
    let mut low = between.low.clone();
    let mut ceiling = between.high.clone();
    loop {
        let mut rows = behind(host, between, &low, most + 1)?;
        if rows.len() <= most {
            return Ok(rows);
        }
        // One row is left behind the new place in any case.
        low = rows.swap_remove(most - 1);
        while let Some(middle) = middle(&low, &ceiling) {
            if behind(host, between, &middle, 1)?.is_empty() {
                ceiling = middle;
            } else {
                low = middle;
                break;
            }
        }
    }
}

fn behind(host: &mut dyn Host, between: &Between<'_>, low: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, Error> {
    let request = ScanRequest { prefix: between.prefix.to_vec(), after: Some(low.to_vec()), limit };
    let rows = host.scan(&request)?.into_iter().map(|(field, _)| field);
    Ok(rows.take_while(|field| *field < between.high).collect())
}

/// A name half-way between two, and different from both. `None` if there is almost no room between them.
fn middle(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    let length = low.len().max(high.len()) + 1;
    let digit = |name: &[u8], at: usize| u16::from(name.get(at).copied().unwrap_or(0));
    let mut sum = vec![0_u16; length];
    let mut carry = 0;
    for at in (0..length).rev() {
        let total = digit(low, at) + digit(high, at) + carry;
        sum[at] = total & 0xFF;
        carry = total >> 8;
    }
    let mut middle = Vec::with_capacity(length);
    for total in sum {
        let value = (carry << 8) | total;
        middle.push((value / 2) as u8);
        carry = value % 2;
    }
    while middle.last() == Some(&0) {
        middle.pop();
    }
    (middle.as_slice() > low && middle.as_slice() < high).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_lies_between() {
        assert_eq!(middle(b"a", b"c"), Some(b"b".to_vec()));
        assert_eq!(middle(b"", b"\x80"), Some(b"\x40".to_vec()));
        assert_eq!(middle(b"a", b"a"), None);
        assert_eq!(middle(b"a", b"a\0"), None);
    }

    #[test]
    fn halving_comes_close() {
        let (low, mut ceiling) = (b"key-000".to_vec(), b"key-\xff".to_vec());
        for _ in 0..80 {
            let Some(next) = middle(&low, &ceiling) else { break };
            assert!(next > low && next < ceiling);
            ceiling = next;
        }
        assert!(ceiling.starts_with(b"key-000"), "{ceiling:?}");
    }
}
