//! Which protocol is checked, against which provider, and how much may go wrong. Every switch has one right position;
//! the others are mistakes that somebody could make.

/// Ticks that a claim or a chunk is leased for.
pub const LEASE_TICKS: u8 = 2;
/// Ticks that a provider may take. Shorter than the lease, or no attempt would ever begin.
pub const DEADLINE_TICKS: u8 = 1;
/// Attempts that count, as `max_attempts` in the configuration.
pub const MAX_ATTEMPTS: u8 = 2;
/// Sends that one instance may hold at a time. Two, because an instance may claim a send anew while its own late
/// outcome of the claim before still waits to be written.
pub const MAX_IN_FLIGHT: usize = 2;
/// Messages that the queue takes; a publisher that finds it full lets its chunk wait.
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
    /// What the product does.
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

/// What the `WHERE` of a settlement asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// `lease = token AND status = 'SENDING'`.
    Token,
    /// `status = 'SENDING'`, and a claim of an instance of that name.
    InstanceName,
    /// `status = 'SENDING'`, whoever claimed it.
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
    /// What is left of the lease must outlast the provider's deadline.
    MeasureLease,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseCounts {
    FromBeforeClaim,
    /// From when the database's answer was read.
    FromAnswer,
}

/// What a process's own clock does while the process is stopped.
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

/// What an expired claim is taken for, where the provider is real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostClaims {
    AreDoubts,
    /// As if the provider had never been asked.
    AreNotAttempted,
}

/// Whether rows that were published and never received are looked for without a known loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    Hourly,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// None: what is received is sent, by the transaction that receives it, as over `WEBSOCKET`.
    Realtime,
    /// Writes the message in the transaction that settles it.
    Capture,
    /// Keeps a ledger of its own. Doubts are sent again.
    Resend,
    /// The same; doubts are left to a person.
    Hold,
}

/// How often something may go wrong. Any kind may use up the whole budget, except for the loss of all messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Crashes, stops, cut connections and answers that get lost.
    pub any: u8,
    /// The broker's data is gone.
    pub losses: u8,
}
