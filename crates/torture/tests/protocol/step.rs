//! The possible steps, and who makes them: the instances, the broker, the provider, time, and chance.

use stateright::{Model, Property};

use crate::protocol::{BeforeCall, ChunkIsDeleted, Faults, Protocol, Provider};
use crate::state::{INSTANCES, Outcome, State};
use crate::{fault, property, publish, receive, send, settle};

#[derive(Debug, Clone, Copy)]
pub struct Delivering {
    pub protocol: Protocol,
    pub provider: Provider,
    pub faults: Faults,
    /// Halves the number of states. Counterexamples are easier to read without it, because instances keep their
    /// numbers.
    pub merges_mirror_images: bool,
}

/// The first number of a step is the instance's, the second one the attempt's index among those in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    // In the order in which a lone survivor prefers its steps: see `drain`.
    Wake(usize),
    NoticeSilence(usize),
    AnswerClaim(usize, usize),
    Begin(usize, usize),
    Accept(usize, usize),
    AnswerSent(usize, usize),
    Settle(usize, usize),
    TakeOver(usize),
    FindExpired(usize, usize),
    ClaimDue(usize, Haste),
    Receive(usize, Permit),
    Acknowledge(usize),
    Deliver(usize),
    Confirm(usize),
    DeleteChunk(usize),
    Publish(usize),
    ClaimChunk(usize),
    MakeGood(usize),
    SweepUp(usize),
    Tick,
    // Steps that a survivor does not need.
    AnswerRetry(usize, usize),
    AnswerNothing(usize, usize),
    Crash(usize),
    Stop(usize),
    Cut(usize),
    LoseClaimAnswer(usize, usize),
    LoseSettleAnswer(usize, usize),
    LoseQueue,
}

/// Whether time passed between reading the clock and the claim's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Haste {
    Prompt,
    Slow,
}

impl Haste {
    /// Slowness is a fault, too.
    pub fn of(state: &State) -> impl Iterator<Item = Haste> {
        let slow = (state.faults.any > 0).then_some(Haste::Slow);
        [Haste::Prompt].into_iter().chain(slow)
    }
}

/// Whether the in-flight queue has a permit when a message is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permit {
    Free(Haste),
    None,
}

impl Model for Delivering {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        match self.provider {
            Provider::Realtime => vec![State::new(self.faults), State::with_handover(self.faults)],
            Provider::Capture | Provider::Resend | Provider::Hold => vec![State::published(self.faults)],
        }
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if fault::time_may_pass(state) {
            steps.push(Step::Tick);
        }
        for i in 0..INSTANCES {
            fault::steps(state, i, steps);
            send::steps_of_provider(state, i, steps);
            if !state.instances[i].is_stopped {
                publish::steps(self, state, i, steps);
                receive::steps(self.provider, state, i, steps);
                send::steps(state, i, steps);
                settle::steps(state, i, steps);
            }
        }
        fault::steps_of_broker(state, steps);
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        self.make(&mut state, step);
        state.renumber_tokens();
        if self.merges_mirror_images {
            state.order_instances();
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::of(self.provider, self.faults)
    }
}

impl Delivering {
    fn make(&self, state: &mut State, step: Step) {
        match step {
            Step::ClaimChunk(i) => publish::claim_chunk(state, i),
            Step::DeleteChunk(i) => publish::delete_too_early(state, i),
            Step::Publish(i) => publish::publish(state, i),
            Step::Confirm(i) => publish::confirm(state, i),
            Step::MakeGood(_) => publish::make_good(state),
            Step::SweepUp(_) => publish::republish(state),
            Step::Deliver(i) => receive::deliver(self.protocol.ack, state, i),
            Step::Receive(i, permit) => receive::receive(self, state, i, permit),
            Step::Acknowledge(i) => receive::acknowledge(state, i),
            Step::ClaimDue(i, haste) => send::claim_due(state, i, haste),
            Step::AnswerClaim(i, a) => send::answer_claim(self.protocol.lease_counts, state, i, a),
            Step::Begin(i, a) => send::begin(self, state, i, a),
            Step::Accept(i, a) => send::accept(state, i, a),
            Step::AnswerSent(i, a) => send::end(state, i, a, Outcome::Sent),
            Step::AnswerRetry(i, a) => send::end(state, i, a, Outcome::Retry),
            Step::AnswerNothing(i, a) => send::end(state, i, a, Outcome::Unknown),
            Step::Settle(i, a) => settle::settle(self, state, i, a),
            Step::FindExpired(i, claim) => settle::find_expired(state, i, claim),
            Step::TakeOver(i) => settle::take_over(self, state, i),
            Step::Tick => fault::tick(self.protocol.clock, state),
            Step::Wake(i) => state.instances[i].is_stopped = false,
            Step::NoticeSilence(i) => fault::cut(state, i),
            Step::Crash(i) => fault::crash(state, i),
            Step::Stop(i) => fault::stop(state, i),
            Step::Cut(i) => fault::cut_by_chance(state, i),
            Step::LoseClaimAnswer(i, a) => fault::lose_claim_answer(state, i, a),
            Step::LoseSettleAnswer(i, a) => fault::lose_settle_answer(self, state, i, a),
            Step::LoseQueue => fault::lose_queue(state),
        }
    }

    pub fn measures_lease(&self) -> bool {
        self.protocol.before_call == BeforeCall::MeasureLease
    }

    pub fn deletes_chunk_early(&self) -> bool {
        self.protocol.chunk == ChunkIsDeleted::BeforeConfirm
    }
}
