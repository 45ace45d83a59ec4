//! The whole state at one moment: the database, the broker, two instances, and a ledger that no instance sees.
//!
//! Times are stored as remaining ticks, so that the clock itself, which has no end, need not be counted. After each
//! step tokens are renumbered in their order. A token that nobody remembers may be used again, so the number of states
//! stays finite.

use crate::protocol::{Faults, LEASE_TICKS};

pub const INSTANCES: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub database: Database,
    pub broker: Broker,
    pub instances: [Instance; INSTANCES],
    pub ledger: Ledger,
    pub faults: Faults,
}

/// One outbox row and everything that follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Database {
    pub chunk: Option<Chunk>,
    /// At most one, as long as the key is unique.
    pub sends: Vec<Send>,
    pub claims: Vec<Claim>,
    /// The number of captured messages.
    pub kept: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Chunk {
    Waiting,
    Leased(Lease),
}

/// Ticks until `lease_until`, by the database's clock. Below zero the lease has expired, however long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease(i8);

impl Lease {
    pub fn new() -> Self {
        Lease(LEASE_TICKS.cast_signed())
    }

    pub fn has_passed(self) -> bool {
        self.0 < 0
    }

    pub fn tick(&mut self) {
        self.0 = (self.0 - 1).max(-1);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u8);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Send {
    pub status: Status,
    pub lease: Option<Token>,
    /// Counted attempts.
    pub attempts: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Due,
    Sending,
    Sent,
    Failed,
    InDoubt,
}

impl Status {
    pub fn is_settled(self) -> bool {
        match self {
            Status::Sent | Status::Failed | Status::InDoubt => true,
            Status::Due | Status::Sending => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    pub token: Token,
    pub instance: usize,
    pub lease: Lease,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Broker {
    /// Messages that no consumer holds.
    pub ready: u8,
    pub queue: Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    Intact,
    /// It is gone with all messages, and not created again yet.
    Lost,
    MadeAgain,
}

/// A process: its tasks and its attempts in flight, all of which a crash deletes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance {
    /// By `SIGSTOP`: it makes no step while time goes on.
    pub is_stopped: bool,
    pub publisher: Publisher,
    pub receiver: Receiver,
    pub in_flight: Vec<Attempt>,
    pub recovery: Option<Found>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Publisher {
    #[default]
    Idle,
    /// It has a chunk's rows. The chunk itself may be gone, or another may be in its place.
    Holds { chunk_is_there: bool },
    /// The broker has the rows.
    Published { chunk_is_there: bool },
    /// Only by a mistake: the chunk was deleted first.
    Forgot,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Receiver {
    #[default]
    Idle,
    /// A message that is not written yet.
    Holds(Delivery),
    /// Written, but not acknowledged.
    Wrote(Delivery),
}

impl Receiver {
    pub fn delivery(self) -> Option<Delivery> {
        match self {
            Receiver::Idle => None,
            Receiver::Holds(delivery) | Receiver::Wrote(delivery) => Some(delivery),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Delivery {
    /// The broker waits for the acknowledgement.
    Open,
    /// The connection broke, or the message is acknowledged: the broker no longer holds it for this instance.
    Closed,
}

/// A claimed send, from the claim's commit until its outcome is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub send: usize,
    pub token: Token,
    /// The number of the attempt, from 1.
    pub number: u8,
    /// The remaining lease in ticks, by this process's clock.
    pub lease_left: u8,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The claim is committed, but the process does not know yet.
    Claiming,
    Waits,
    Calls {
        /// Ticks until the deadline.
        left: u8,
        is_accepted: bool,
        /// The process was stopped during the call, so the deadline could not end it.
        was_stopped: bool,
    },
    Ended(Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Sent,
    Retry,
    Unknown,
    NotAttempted,
}

/// An expired claim as recovery read it; a second transaction takes it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Found {
    pub token: Token,
    /// Its send, and the number of the attempt.
    pub job: Option<(usize, u8)>,
}

/// What an observer of everything knows. The flags are set only by what must not happen, so with the right protocol
/// they add no states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// How often the provider accepted the message.
    pub accepted: u8,
    /// Unknown outcomes that were recorded.
    pub doubts: u8,
    pub began_late: bool,
    pub reached_late: bool,
    pub overwrote: bool,
}

impl State {
    /// The fan-out has committed; its chunk waits.
    pub fn new(faults: Faults) -> Self {
        State {
            database: Database {
                chunk: Some(Chunk::Waiting),
                sends: Vec::new(),
                claims: Vec::new(),
                kept: 0,
            },
            broker: Broker { ready: 0, queue: Queue::Intact },
            instances: Default::default(),
            ledger: Ledger::default(),
            faults,
        }
    }

    /// The fan-out has committed, and its chunk was handed over in memory under its first lease.
    pub fn with_handover(faults: Faults) -> Self {
        let mut state = State::new(faults);
        state.database.chunk = Some(Chunk::Leased(Lease::new()));
        state.instances[0].publisher = Publisher::Holds { chunk_is_there: true };
        state
    }

    /// The row is published already.
    pub fn published(faults: Faults) -> Self {
        let mut state = State::new(faults);
        state.database.chunk = None;
        state.broker.ready = 1;
        state
    }

    pub fn is_settled(&self) -> bool {
        let sends = &self.database.sends;
        !sends.is_empty() && sends.iter().all(|send| send.status.is_settled())
    }

    /// A claim with an unused token.
    pub fn claim(&mut self, instance: usize) -> Token {
        let mut highest = 0;
        self.each_token(|token| highest = highest.max(token.0));
        let token = Token(highest + 1);
        self.database.claims.push(Claim { token, instance, lease: Lease::new() });
        token
    }

    /// Renumbers the tokens from 1, in their order.
    pub fn renumber_tokens(&mut self) {
        let mut used = 0_u32;
        self.each_token(|token| used |= 1 << token.0);
        self.each_token(|token| {
            let lower = used & ((1 << token.0) - 1);
            *token = Token(1 + u8::try_from(lower.count_ones()).expect("there are few tokens"));
        });
    }

    /// Instances differ only by their numbers, so one of two mirrored states is enough.
    pub fn order_instances(&mut self) {
        if self.instances[0] > self.instances[1] {
            self.instances.swap(0, 1);
            for claim in &mut self.database.claims {
                claim.instance = 1 - claim.instance;
            }
        }
    }

    fn each_token(&mut self, mut visit: impl FnMut(&mut Token)) {
        self.database.sends.iter_mut().filter_map(|send| send.lease.as_mut()).for_each(&mut visit);
        self.database.claims.iter_mut().for_each(|claim| visit(&mut claim.token));
        for instance in &mut self.instances {
            instance.in_flight.iter_mut().for_each(|attempt| visit(&mut attempt.token));
            instance.recovery.iter_mut().for_each(|found| visit(&mut found.token));
        }
    }
}
