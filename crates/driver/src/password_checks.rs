//! The password checks that are under way on one core.
//!
//! Many connections may log in as one user at the same moment. A check that equals one under way
//! joins it: all of them get the result of one hash. Pure: no clock, no threads.

use millrace_func::Offload;
use millrace_shard::OffloadTicket;

/// A check that runs, and the tickets that joined it.
struct Check {
    /// The ticket that began the check.
    first: OffloadTicket,
    password: Vec<u8>,
    hash: String,
    joined: Vec<OffloadTicket>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct PasswordChecks {
    /// At most [`millrace_base::limits::OFFLOADS`], and a hash costs far more than a look through them.
    under_way: Vec<Check>,
    joined: usize,
}

impl PasswordChecks {
    /// Whether the ticket has joined an equal check. If not, the caller runs the work, and calls
    /// [`PasswordChecks::begin`] before and [`PasswordChecks::end`] after it.
    pub(crate) fn join(&mut self, ticket: OffloadTicket, work: &Offload) -> bool {
        let Offload::Argon2idVerify { password, hash } = work else {
            return false;
        };
        let mut checks = self.under_way.iter_mut();
        match checks.find(|check| check.hash == *hash && check.password == *password) {
            Some(check) => {
                check.joined.push(ticket);
                self.joined += 1;
                true
            }
            None => false,
        }
    }

    /// Work begins. Only a check of a password can be joined: a new hash has a salt of its own.
    pub(crate) fn begin(&mut self, first: OffloadTicket, work: &Offload) {
        if let Offload::Argon2idVerify { password, hash } = work {
            let (password, hash) = (password.clone(), hash.clone());
            self.under_way.push(Check { first, password, hash, joined: Vec::new() });
        }
    }

    /// The work of this ticket has ended. Gives the tickets that get its result too.
    pub(crate) fn end(&mut self, first: &OffloadTicket) -> Vec<OffloadTicket> {
        let Some(index) = self.under_way.iter().position(|check| check.first == *first) else {
            return Vec::new();
        };
        let joined = self.under_way.swap_remove(index).joined;
        self.joined -= joined.len();
        joined
    }

    /// How many tickets wait for a check that another ticket began.
    pub(crate) fn joined(&self) -> usize {
        self.joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::ShardId;
    use millrace_func::{ActivationId, OperationId};

    fn ticket(nonce: u64) -> OffloadTicket {
        OffloadTicket {
            shard: Some(ShardId(0)),
            nonce,
            activation: ActivationId(0),
            instance: 0,
            operation: OperationId(0),
        }
    }

    fn check(password: &str, hash: &str) -> Offload {
        Offload::Argon2idVerify { password: password.as_bytes().to_vec(), hash: hash.to_owned() }
    }

    /// Runs what begins, and counts it.
    fn offload(checks: &mut PasswordChecks, nonce: u64, work: &Offload) -> usize {
        if checks.join(ticket(nonce), work) {
            return 0;
        }
        checks.begin(ticket(nonce), work);
        1
    }

    #[test]
    fn a_hundred_equal_checks_cost_one_hash() {
        let mut checks = PasswordChecks::default();
        let hashes: usize = (0..100).map(|nonce| offload(&mut checks, nonce, &check("p", "h"))).sum();
        assert_eq!((hashes, checks.joined()), (1, 99));
        assert_eq!(checks.end(&ticket(0)), (1..100).map(ticket).collect::<Vec<_>>());
        assert_eq!(checks.joined(), 0);
        // A later check is not under way any more.
        assert_eq!(offload(&mut checks, 100, &check("p", "h")), 1);
    }

    #[test]
    fn only_equal_checks_are_joined() {
        let mut checks = PasswordChecks::default();
        let salted = |salt| Offload::Argon2idHash { password: b"p".to_vec(), salt };
        let different = [check("p", "h"), check("q", "h"), check("p", "i"), salted([1; 16]), salted([1; 16])];
        let hashes: usize = (0..).zip(&different).map(|(nonce, work)| offload(&mut checks, nonce, work)).sum();
        assert_eq!(hashes, different.len());
        assert!(offload(&mut checks, 10, &check("q", "h")) == 0 && checks.joined() == 1);
        for other in [0, 2, 3, 4] {
            assert_eq!(checks.end(&ticket(other)), []);
        }
        assert_eq!(checks.end(&ticket(1)), [ticket(10)]);
    }

    #[test]
    fn a_ticket_that_joined_ends_nothing() {
        let mut checks = PasswordChecks::default();
        offload(&mut checks, 0, &check("p", "h"));
        offload(&mut checks, 1, &check("p", "h"));
        assert_eq!(checks.end(&ticket(1)), []);
        assert_eq!(checks.end(&ticket(0)), [ticket(1)]);
    }
}
