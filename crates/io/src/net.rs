//! The network between peers.

/// Carries frames to peers: cores of this process over channels, or other machines over sockets.
///
/// A frame may be late, lost, doubled or overtaken by a later one, unless the implementation says otherwise. Whoever runs a
/// peer receives its frames and hands them to it, one at a time.
pub trait Net<Frame> {
    /// Sends a frame to the peer of that number. Says whether the peer is there; it says nothing about the arrival.
    fn send(&self, peer: usize, frame: Frame) -> bool;
}
