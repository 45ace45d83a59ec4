//! All that is there at one moment: the database, the broker, two instances, and a ledger that no instance can see.
//!
//! Times are what is left until them, so the clock itself need not be counted, and has no end. Tokens are numbered anew
//! after each step, in their order: a token that nobody remembers may be given again, and the number of states stays
//! finite.

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

/// One outbox row, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Database {
    pub chunk: Option<Chunk>,
    /// At most one, as long as the key is unique.
    pub sends: Vec<Send>,
    pub claims: Vec<Claim>,
    /// Captured messages.
    pub kept: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Chunk {
    Waiting,
    Leased(Lease),
}

/// Ticks until `lease_until`, by the database's clock; below zero it has passed, and how long ago does not matter.
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
    /// Attempts that counted.
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
    /// Messages that nobody holds.
    pub ready: u8,
    pub queue: Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    Intact,
    /// It is gone with all that was in it, and not made again yet.
    Lost,
    MadeAgain,
}

/// A process: its loops and its attempts in flight, all of them forgotten in a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance {
    /// By `SIGSTOP`: it makes no step, and time goes on.
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
    /// A chunk's rows are here. The chunk itself may be gone by now, or another may be in its place.
    Holds { chunk_is_there: bool },
    /// The broker has them.
    Published { chunk_is_there: bool },
    /// Only by mistake: the chunk was deleted first.
    Forgot,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Receiver {
    #[default]
    Idle,
    /// A message, to be written.
    Holds(Delivery),
    /// Written, to be acknowledged.
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
    /// The connection broke, or it is acknowledged: the broker does not hold it for us any more.
    Closed,
}

/// A claimed send, from the claim's commit until its outcome is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub send: usize,
    pub token: Token,
    /// The how-manieth, from 1.
    pub number: u8,
    /// Ticks that are left of the lease by this process's own clock.
    pub lease_left: u8,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The claim is committed, and the process does not know yet.
    Claiming,
    Waits,
    Calls {
        /// Ticks until the deadline.
        left: u8,
        is_accepted: bool,
        /// The process was stopped in the middle of the call, so the deadline could not end it.
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

/// An expired claim as recovery read it; it is taken over by a second transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Found {
    pub token: Token,
    /// The send that was under it, and its attempt's number.
    pub job: Option<(usize, u8)>,
}

/// What an observer knows who sees everything. The flags are raised by what must not happen, so in the right protocol
/// they cost no states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// How often the provider accepted the message.
    pub accepted: u8,
    /// Unknown outcomes that were written down.
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

    /// The same, but the chunk was born leased, and handed over in memory.
    pub fn with_handover(faults: Faults) -> Self {
        let mut state = State::new(faults);
        state.database.chunk = Some(Chunk::Leased(Lease::new()));
        state.instances[0].publisher = Publisher::Holds { chunk_is_there: true };
        state
    }

    /// Published already.
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

    /// A claim and its token, which nobody has or remembers.
    pub fn claim(&mut self, instance: usize) -> Token {
        let mut highest = 0;
        self.each_token(|token| highest = highest.max(token.0));
        let token = Token(highest + 1);
        self.database.claims.push(Claim { token, instance, lease: Lease::new() });
        token
    }

    /// Numbers the tokens anew, from 1, in their order.
    pub fn renumber_tokens(&mut self) {
        let mut used = 0_u32;
        self.each_token(|token| used |= 1 << token.0);
        self.each_token(|token| {
            let lower = used & ((1 << token.0) - 1);
            *token = Token(1 + u8::try_from(lower.count_ones()).expect("there are few tokens"));
        });
    }

    /// Instances differ by nothing but their numbers, so of two states that are each other's mirror image one is
    /// enough.
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
