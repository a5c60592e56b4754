//! Which replies are right.

use super::codec::Reply;

/// What every reply must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The right statuses; empty stands for 200 to 299.
    pub statuses: Vec<u16>,
    /// Statuses that are neither right nor wrong: the server shed the request.
    pub shed: Vec<u16>,
    /// The whole body of a right reply.
    pub body: Option<Vec<u8>>,
    /// Bytes that must stand somewhere in the body of a right reply.
    pub body_contains: Option<Vec<u8>>,
}

/// What a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    Shed,
    WrongStatus,
    WrongBody,
}

impl Expectation {
    /// Whether bodies must be kept to be checked.
    pub(super) fn needs_body(&self) -> bool {
        self.body.is_some() || self.body_contains.is_some()
    }

    /// A hint for a user who did not set the expectation.
    pub(super) fn advice(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::WrongStatus if self.statuses.is_empty() => {
                " (200 to 299 are right; --expect-status says which are, --allow-status which are counted apart)"
            }
            _ => "",
        }
    }

    pub(super) fn judge(&self, reply: &Reply<'_>) -> Verdict {
        let is_right = match self.statuses.as_slice() {
            [] => (200..300).contains(&reply.status),
            statuses => statuses.contains(&reply.status),
        };
        if !is_right {
            return if self.shed.contains(&reply.status) { Verdict::Shed } else { Verdict::WrongStatus };
        }
        let is_same = self.body.as_ref().is_none_or(|body| body == reply.body);
        if is_same && self.body_contains.as_ref().is_none_or(|part| contains(reply.body, part)) {
            Verdict::Right
        } else {
            Verdict::WrongBody
        }
    }
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_right_only_if_all_of_it_is() {
        let reply = |status, body| Reply { status, keep_alive: true, body };
        let any = Expectation::default();
        assert_eq!(any.judge(&reply(204, b"")), Verdict::Right);
        assert_eq!(any.judge(&reply(302, b"")), Verdict::WrongStatus);
        assert!(any.advice(Verdict::WrongStatus).contains("--expect-status"));
        assert_eq!(any.advice(Verdict::WrongBody), "");
        let strict = Expectation {
            statuses: vec![200, 201],
            shed: vec![503],
            body: Some(b"ok".to_vec()),
            body_contains: Some(b"k".to_vec()),
        };
        assert_eq!(strict.judge(&reply(201, b"ok")), Verdict::Right);
        assert_eq!(strict.judge(&reply(200, b"ok ")), Verdict::WrongBody);
        assert_eq!(strict.judge(&reply(204, b"ok")), Verdict::WrongStatus);
        assert_eq!(strict.judge(&reply(503, b"busy")), Verdict::Shed);
        assert_eq!(strict.advice(Verdict::WrongStatus), "", "who has said what is right knows how to");
        let part = Expectation { body_contains: Some(b"bc".to_vec()), ..Expectation::default() };
        assert_eq!(part.judge(&reply(200, b"abcd")), Verdict::Right);
        assert_eq!(part.judge(&reply(200, b"abd")), Verdict::WrongBody);
    }
}
