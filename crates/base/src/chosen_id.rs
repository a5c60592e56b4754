//! Ids of workflows that their callers choose.

use crate::{Error, ErrorCode, limits};

/// How the ids begin that the server makes. No chosen id begins so.
const RESERVED: [&str; 2] = ["inv_", "dl_"];

/// Checks an id that a caller chose for a workflow: 1 to [`limits::CHOSEN_ID_BYTES`] letters, digits, `.`, `_`, `~`, `:`
/// and `-` of ASCII, the first one a letter or a digit. So an id is one segment of a path, and no path is made of dots.
///
/// # Errors
/// `bad-request` for any other text, and for one that looks like an id that the server makes.
pub fn check_chosen_id(text: &str) -> Result<(), Error> {
    let refused = |message: String| Err(Error::new(ErrorCode::BadRequest, message));
    let limit = limits::CHOSEN_ID_BYTES;
    let may_follow = |byte: u8| byte.is_ascii_alphanumeric() || b"._~:-".contains(&byte);
    let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins_well || text.len() > limit || !text.bytes().all(may_follow) {
        return refused(format!(
            "a workflow's id has 1 to {limit} letters, digits and characters of ._~:- and begins with a letter or a digit"
        ));
    }
    match RESERVED.iter().find(|prefix| text.starts_with(**prefix)) {
        Some(prefix) => refused(format!("only ids that the server makes begin with {prefix}: choose another one")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_of_a_path_and_looks_like_none_of_the_servers() {
        for text in ["a", "7", "order-17", "2026-11-27T10:00:00.5", "A_b~c", &"x".repeat(limits::CHOSEN_ID_BYTES)] {
            assert_eq!(check_chosen_id(text), Ok(()), "{text}");
        }
        for text in ["", ".", "..", "-a", "a b", "a/b", "é", "a%20", "a\n", &"x".repeat(limits::CHOSEN_ID_BYTES + 1)] {
            let error = check_chosen_id(text).expect_err(text);
            assert!(error.message.contains("1 to 128 letters"), "{text}: {error}");
        }
        for text in ["inv_", "inv_0000", "dl_1"] {
            let error = check_chosen_id(text).expect_err(text);
            assert!(error.message.contains("choose another one"), "{text}: {error}");
        }
    }
}
