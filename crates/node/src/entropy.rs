//! Unpredictable bits that are the same when an invocation is run again.

use millrace_func::sha256;
use millrace_io::Random;
use millrace_shard::Entropy;

/// SHA-256 over a secret of the process, the invocation and the index: whoever does not know the
/// secret cannot tell the result from random bits, and nothing is computed that is not asked for.
#[derive(Clone)]
pub(crate) struct KeyedEntropy {
    secret: [u8; 32],
}

impl KeyedEntropy {
    pub(crate) fn new(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        Self { secret }
    }
}

impl Entropy for KeyedEntropy {
    fn draw(&self, nonce: u64, index: u32) -> u64 {
        let mut message = [0; 44];
        message[..32].copy_from_slice(&self.secret);
        message[32..40].copy_from_slice(&nonce.to_le_bytes());
        message[40..].copy_from_slice(&index.to_le_bytes());
        let digest = sha256(&message);
        let mut bits = [0; 8];
        bits.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(bits)
    }
}
