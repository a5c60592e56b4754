//! Names of versions: 26 letters and digits that hold the version's place and chance, so that a version is found without
//! a search and nobody guesses one.

/// Digits of the names: lower case, without those that look alike.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Letters of a name: five bits each, for the 128 bits of order and chance.
const LETTERS: usize = 26;

/// The name of the version at `order`.
pub(crate) fn version_id(order: u64, chance: u64) -> String {
    let bits = u128::from(order) << 64 | u128::from(chance);
    let digit = |at: usize| char::from(DIGITS[(bits >> (5 * (LETTERS - 1 - at)) & 31) as usize]);
    (0..LETTERS).map(digit).collect()
}

/// The order in a name; `None` if it is none.
pub(crate) fn order_of(id: &str) -> Option<u64> {
    if id.len() != LETTERS {
        return None;
    }
    let mut bits = 0_u128;
    for (at, letter) in id.bytes().enumerate() {
        let digit = DIGITS.iter().position(|digit| *digit == letter)? as u128;
        // The first letter holds the three highest bits.
        if at == 0 && digit > 7 {
            return None;
        }
        bits = bits << 5 | digit;
    }
    Some((bits >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_order() {
        for order in [0, 1, u64::MAX, u64::MAX - 12_345, 1 << 63] {
            for chance in [0, 7, u64::MAX] {
                assert_eq!(order_of(&version_id(order, chance)), Some(order));
            }
        }
        assert!(version_id(5, u64::MAX) < version_id(6, 0));
        for other in
            ["", "null", "zzzzzzzzzzzzzzzzzzzzzzzzzz", "0000000000000000000000000O", "ä0000000000000000000000000"]
        {
            assert_eq!(order_of(other), None, "{other}");
        }
    }
}
