//! The seam between the load and a protocol: how a request is written and how a reply is judged.

/// Writes requests and judges replies of one protocol. Each sending thread owns its own instance.
///
/// A transaction is named by `(flow, seq)`: `flow` counts from 0 over the plan, `seq` from 0 within the flow.
/// The template must get both back from the bytes of a reply alone.
pub trait Template: Send {
    /// The protocol's name, as the user types it.
    fn name(&self) -> &'static str;

    /// The smallest request in bytes that can carry what `check` needs.
    fn min_size(&self) -> usize;

    /// Fills all of `request` (at least [`Template::min_size`] bytes) with the request of transaction `(flow, seq)`.
    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]);

    /// Judges a reply that arrived on `flow`.
    fn check(&self, flow: u32, reply: &[u8]) -> Judgement;
}

/// What a reply turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The intact reply to request `seq` of the flow it arrived on.
    Valid {
        /// Sequence number of the request within its flow.
        seq: u64,
    },
    /// An intact reply that belongs to another flow.
    WrongFlow,
    /// Damaged, cut short or not of this protocol.
    Corrupt,
}
