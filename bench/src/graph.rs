//! The friends graph of the cell `graph-walk`: as large as a known one of Facebook's, and as uneven.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use crate::{Outcome, small};

/// People, as in the graph `ego-Facebook` of the Stanford collection.
pub const PEOPLE: usize = 4_039;

/// Friends that each person finds on joining: 88,234 friendships there are 22 a person.
const FRIENDS: usize = 22;

/// People whose lists are sent in one call.
const CHUNK: usize = 250;

/// Whose friend each person is. Who joins finds friends among those who have many (preferential attachment); the
/// same graph each time.
fn lists() -> Vec<BTreeSet<usize>> {
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) as usize % below
    };
    let mut lists = vec![BTreeSet::new(); PEOPLE];
    // Each friendship puts both its ends here.
    let mut ends: Vec<usize> = (0..=FRIENDS).collect();
    for person in FRIENDS + 1..PEOPLE {
        while lists[person].len() < FRIENDS {
            let friend = ends[draw(ends.len())];
            if lists[person].insert(friend) {
                lists[friend].insert(person);
            }
        }
        ends.extend(lists[person].iter().flat_map(|friend| [*friend, person]));
    }
    lists
}

/// Sends the graph to a server of the app.
///
/// # Errors
/// If a call fails.
pub(crate) fn load(address: SocketAddr) -> Outcome<()> {
    let lists = lists();
    for (chunk, people) in lists.chunks(CHUNK).enumerate() {
        let mut body = String::from("{");
        for (person, friends) in people.iter().enumerate() {
            let comma = if person > 0 { "," } else { "" };
            let texts: Vec<String> = friends.iter().map(usize::to_string).collect();
            // Writing to a string cannot fail.
            let _ = write!(body, "{comma}\"{}\":[{}]", chunk * CHUNK + person, texts.join(","));
        }
        body.push('}');
        let (status, reply) = small::http(address, "POST", "/call/friends/all/load", &body)?;
        if status != 200 {
            return Err(format!("loading the graph gave {status}: {reply}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn friendship_is_mutual_and_uneven() {
        let lists = lists();
        let ends: usize = lists.iter().map(BTreeSet::len).sum();
        assert_eq!(ends, 2 * FRIENDS * (PEOPLE - FRIENDS - 1));
        let is_mutual =
            |(person, friends): (usize, &BTreeSet<usize>)| friends.iter().all(|f| lists[*f].contains(&person));
        assert!(lists.iter().enumerate().all(is_mutual));
        assert!(lists.iter().map(BTreeSet::len).max() > Some(300));
    }
}
