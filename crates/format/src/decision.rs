//! The fact that a transaction over several shards is committed, and which shards have not acknowledged it yet. The
//! coordinator's shard stores it as a field of its bookkeeping entity `decision`, under the transaction's id. It is in
//! the entry that holds the coordinator's own writes. The shard deletes it once every participant has applied the
//! commit.
//!
//! ```text
//! decision (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      2      number of participants, little-endian
//!  3      …      their shards, 2 bytes each, little-endian
//! ```

use millrace_base::ShardId;

use crate::DecodeError;
use crate::fields::FieldReader;

const VERSION: u8 = 1;

/// A commit, with the shards that hold prepared writes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The shards, without the coordinator.
    pub participants: Vec<ShardId>,
}

impl Decision {
    /// The stored bytes.
    ///
    /// # Panics
    /// If there are more participants than there can be shards.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = u16::try_from(self.participants.len()).expect("a node has fewer than 2^16 shards");
        let mut out = vec![VERSION];
        out.extend_from_slice(&count.to_le_bytes());
        for shard in &self.participants {
            out.extend_from_slice(&shard.0.to_le_bytes());
        }
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a decision of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        reader.version(VERSION)?;
        let count = reader.u16()?;
        let participants = (0..count).map(|_| reader.u16().map(ShardId)).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { participants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decisions_round_trip(shards in proptest::collection::vec(any::<u16>(), 0..9)) {
            let decision = Decision { participants: shards.into_iter().map(ShardId).collect() };
            prop_assert_eq!(Decision::decode(&decision.encode()), Ok(decision));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = Decision::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let decision = Decision { participants: vec![ShardId(1), ShardId(0x0203)] };
        assert_eq!(decision.encode(), b"\x01\x02\0\x01\0\x03\x02");
    }
}
