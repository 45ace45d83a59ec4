//! Claimed send → provider, as in `pipeline/send`. The provider is not under our control: it accepts, answers, or is
//! silent at will. It does not know whether the calling process is stopped.

use crate::protocol::{DEADLINE_TICKS, LEASE_TICKS, LeaseCounts, MAX_IN_FLIGHT, Provider};
use crate::receive;
use crate::state::{Attempt, Outcome, Phase, State, Status};
use crate::step::{Delivering, Haste, Step};

pub fn steps(state: &State, i: usize, steps: &mut Vec<Step>) {
    let in_flight = &state.instances[i].in_flight;
    if in_flight.len() < MAX_IN_FLIGHT && due(state).is_some() {
        steps.extend(Haste::of(state).map(|haste| Step::ClaimDue(i, haste)));
    }
    for (a, attempt) in in_flight.iter().enumerate() {
        match attempt.phase {
            Phase::Claiming => steps.push(Step::AnswerClaim(i, a)),
            Phase::Waits => steps.push(Step::Begin(i, a)),
            Phase::Calls { is_accepted, .. } => {
                steps.push(if is_accepted { Step::AnswerSent(i, a) } else { Step::AnswerRetry(i, a) });
                // The deadline has passed, or the connection broke before the answer.
                steps.push(Step::AnswerNothing(i, a));
            }
            Phase::Ended(_) => {}
        }
    }
}

/// A request may be accepted while the calling process is stopped.
pub fn steps_of_provider(state: &State, i: usize, steps: &mut Vec<Step>) {
    for (a, attempt) in state.instances[i].in_flight.iter().enumerate() {
        if matches!(attempt.phase, Phase::Calls { is_accepted: false, .. }) {
            steps.push(Step::Accept(i, a));
        }
    }
}

fn due(state: &State) -> Option<usize> {
    state.database.sends.iter().position(|send| send.status == Status::Due)
}

/// `claim_due.sql`.
pub fn claim_due(state: &mut State, i: usize, haste: Haste) {
    let send = due(state).expect("a send is due");
    receive::start(state, i, send, haste);
}

/// The claim's answer arrives, and the send is in flight.
pub fn answer_claim(counts: LeaseCounts, state: &mut State, i: usize, a: usize) {
    let attempt = &mut state.instances[i].in_flight[a];
    attempt.phase = Phase::Waits;
    if counts == LeaseCounts::FromAnswer {
        attempt.lease_left = LEASE_TICKS;
    }
}

/// Reads the clock and begins. `capture` calls nobody: its message is written with the outcome.
pub fn begin(model: &Delivering, state: &mut State, i: usize, a: usize) {
    let attempt = state.instances[i].in_flight[a].clone();
    let phase = if model.measures_lease() && attempt.lease_left <= DEADLINE_TICKS {
        Phase::Ended(Outcome::NotAttempted)
    } else if model.provider == Provider::Capture {
        Phase::Ended(Outcome::Sent)
    } else {
        Phase::Calls { left: DEADLINE_TICKS, is_accepted: false, was_stopped: false }
    };
    if phase != Phase::Ended(Outcome::NotAttempted) && !is_leased(state, &attempt) {
        state.ledger.began_late = true;
    }
    state.instances[i].in_flight[a].phase = phase;
}

/// Whether the lease is valid for the database.
fn is_leased(state: &State, attempt: &Attempt) -> bool {
    state.database.claims.iter().any(|claim| claim.token == attempt.token && !claim.lease.has_passed())
}

pub fn accept(state: &mut State, i: usize, a: usize) {
    let attempt = state.instances[i].in_flight[a].clone();
    let Phase::Calls { left, was_stopped, .. } = attempt.phase else { return };
    state.instances[i].in_flight[a].phase = Phase::Calls { left, is_accepted: true, was_stopped };
    state.ledger.accepted += 1;
    if !was_stopped && !is_leased(state, &attempt) {
        state.ledger.reached_late = true;
    }
}

pub fn end(state: &mut State, i: usize, a: usize, outcome: Outcome) {
    state.instances[i].in_flight[a].phase = Phase::Ended(outcome);
}
