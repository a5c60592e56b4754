//! A body is read at a node that does not hold it: from one that does, piece by piece.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_blobs::BodyName;
use millrace_replica::NodeId;

use super::{BodyWord, Carrier};

pub(super) fn unreachable(name: BodyName) -> Error {
    let message = format!("the body {name} cannot be read from the node that has it; try again");
    Error::new(ErrorCode::Overloaded, message)
}

impl Carrier {
    /// A node that holds a body, and the body's length. `None`: no node has it.
    ///
    /// # Errors
    /// `overloaded` if a node that may have it cannot be asked.
    pub(crate) async fn find(&self, name: BodyName) -> Result<Option<(NodeId, u64)>, Error> {
        let mut is_known = true;
        for node in self.others(name) {
            let word = BodyWord::Read { offset: 0, bytes: 0 };
            match self.question(node, name, &word).await {
                Some(BodyWord::Data { length, .. }) => return Ok(Some((node, length))),
                answer => is_known &= answer.is_some(),
            }
        }
        if is_known { Ok(None) } else { Err(unreachable(name)) }
    }

    /// Some bytes of a body that is damaged here.
    ///
    /// # Errors
    /// As [`Carrier::read_far`].
    pub(crate) async fn read_any(&self, name: BodyName, offset: u64, bytes: u32) -> Result<Bytes, Error> {
        let node = self.others(name).first().copied().ok_or_else(|| unreachable(name))?;
        self.read_far(node, name, offset, bytes).await
    }

    /// Some bytes of a body of another node: of that one, or of any that has them.
    ///
    /// # Errors
    /// `overloaded` if no node that has the body can be reached.
    pub(crate) async fn read_far(&self, node: NodeId, name: BodyName, offset: u64, bytes: u32) -> Result<Bytes, Error> {
        let others = self.others(name).into_iter().filter(|other| *other != node);
        for node in std::iter::once(node).chain(others) {
            let word = BodyWord::Read { offset, bytes };
            match self.question(node, name, &word).await {
                Some(BodyWord::Data { bytes: piece, .. }) if piece.len() == bytes as usize => return Ok(piece),
                _ => {}
            }
        }
        Err(unreachable(name))
    }
}
