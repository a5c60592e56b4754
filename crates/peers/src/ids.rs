//! What names a cluster, and a node in a certificate.

use std::fmt;

use millrace_replica::NodeId;

/// Names one cluster for ever. Drawn at random when the cluster is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// Reads what [`fmt::Display`] writes: 32 hexadecimal digits in lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_hex) {
            return None;
        }
        let mut id = [0; 16];
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(id))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The DNS name that the certificate of a node is for. It is not looked up anywhere. It binds the certificate to the node
/// and to the cluster.
#[must_use]
pub fn certificate_name(cluster: ClusterId, node: NodeId) -> String {
    format!("node-{node}.{cluster}.millrace.internal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_read_as_it_is_written_and_nothing_else_is() {
        let id = ClusterId([0xab; 16]);
        assert_eq!(ClusterId::parse(&id.to_string()), Some(id));
        for text in ["", "ab", &"AB".repeat(16), &"zz".repeat(16), &"ab".repeat(17), &"é".repeat(16)] {
            assert_eq!(ClusterId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_name_of_a_certificate_has_node_and_cluster() {
        let name = certificate_name(ClusterId([1; 16]), NodeId(7));
        assert_eq!(name, "node-7.01010101010101010101010101010101.millrace.internal");
    }
}
