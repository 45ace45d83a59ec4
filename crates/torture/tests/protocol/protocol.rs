//! The protocol and provider to check, and the number of faults. Every switch has one right position; the others are
//! plausible mistakes.

/// The lease of a claim or a chunk, in ticks.
pub const LEASE_TICKS: u8 = 2;
/// The provider's deadline in ticks. It must be shorter than the lease, or no attempt would ever begin.
pub const DEADLINE_TICKS: u8 = 1;
/// The limit of counted attempts, as `max_attempts` in the configuration.
pub const MAX_ATTEMPTS: u8 = 2;
/// The most sends that one instance holds. Two, because an instance may claim a send again while its own late outcome
/// of the previous claim is still unwritten.
pub const MAX_IN_FLIGHT: usize = 2;
/// The capacity of the queue. A publisher that finds it full leaves its chunk waiting.
pub const QUEUE_MESSAGES: u8 = 2;

#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    pub fence: Fence,
    pub ack: Ack,
    pub chunk: ChunkIsDeleted,
    pub before_call: BeforeCall,
    pub lease_counts: LeaseCounts,
    pub clock: Clock,
    pub key: Key,
    pub lost_claims: LostClaims,
    pub sweep: Sweep,
}

impl Protocol {
    /// The product's protocol.
    pub const RIGHT: Protocol = Protocol {
        fence: Fence::Token,
        ack: Ack::AfterCommit,
        chunk: ChunkIsDeleted::AfterConfirm,
        before_call: BeforeCall::MeasureLease,
        lease_counts: LeaseCounts::FromBeforeClaim,
        clock: Clock::RunsOn,
        key: Key::Unique,
        lost_claims: LostClaims::AreDoubts,
        sweep: Sweep::Hourly,
    };
}

/// The condition in the `WHERE` of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// `lease = token AND status = 'SENDING'`.
    Token,
    /// `status = 'SENDING'`, and a claim of an instance with that name.
    InstanceName,
    /// `status = 'SENDING'`, with any claim.
    Status,
    /// Only the key.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    AfterCommit,
    BeforeCommit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkIsDeleted {
    AfterConfirm,
    BeforeConfirm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeCall {
    /// The remaining lease must be longer than the provider's deadline.
    MeasureLease,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseCounts {
    FromBeforeClaim,
    /// From when the database's answer was read.
    FromAnswer,
}

/// What a process's clock does while the process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    RunsOn,
    StopsWithProcess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Unique,
    None,
}

/// How an expired claim is treated with a real provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostClaims {
    AreDoubts,
    /// As if the provider had never been asked.
    AreNotAttempted,
}

/// Whether rows that were published and never received are searched without a known loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    Hourly,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// None: the transaction that receives a message also sends it, as for `WEBSOCKET`.
    Realtime,
    /// Writes the message in the transaction that settles it.
    Capture,
    /// Keeps a ledger of its own. Doubts are sent again.
    Resend,
    /// Keeps a ledger of its own. Doubts are held for a person.
    Hold,
}

/// The number of faults. Any kind may use the whole budget, except the loss of all messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Crashes, stops, cut connections and lost answers.
    pub any: u8,
    /// The broker loses its data.
    pub losses: u8,
}
