//! Outcome → database, as in `pipeline/settle`: by the holder of the claim, or by recovery after its lease. Both make
//! the same fenced update.

use crate::protocol::{Fence, LostClaims, MAX_ATTEMPTS, Provider};
use crate::state::{Found, Outcome, Phase, State, Status, Token};
use crate::step::{Delivering, Step};

pub fn steps(state: &State, i: usize, steps: &mut Vec<Step>) {
    let instance = &state.instances[i];
    for (a, attempt) in instance.in_flight.iter().enumerate() {
        if matches!(attempt.phase, Phase::Ended(_)) {
            steps.push(Step::Settle(i, a));
        }
    }
    if instance.recovery.is_some() {
        steps.push(Step::TakeOver(i));
        return;
    }
    // A process settles what it holds itself.
    let is_held =
        |token| instance.in_flight.iter().any(|held| held.token == token && held.phase != Phase::Claiming);
    for (c, claim) in state.database.claims.iter().enumerate() {
        if claim.lease.has_passed() && !is_held(claim.token) {
            steps.push(Step::FindExpired(i, c));
        }
    }
}

struct Settlement {
    by: usize,
    send: usize,
    token: Token,
    number: u8,
    outcome: Outcome,
}

pub fn settle(model: &Delivering, state: &mut State, i: usize, a: usize) {
    write_attempt(model, state, i, a);
    state.instances[i].in_flight.remove(a);
}

/// The outcome and the end of its claim, in one transaction.
pub fn write_attempt(model: &Delivering, state: &mut State, i: usize, a: usize) {
    let attempt = state.instances[i].in_flight[a].clone();
    let Phase::Ended(outcome) = attempt.phase else { return };
    let (send, token, number) = (attempt.send, attempt.token, attempt.number);
    write(model, state, &Settlement { by: i, send, token, number, outcome });
    delete_claim(state, token);
}

/// `expired_claims.sql` and `claimed_sends.sql`, in one snapshot. Nothing is changed yet.
pub fn find_expired(state: &mut State, i: usize, claim: usize) {
    let token = state.database.claims[claim].token;
    let mut sends = state.database.sends.iter().enumerate();
    let job = sends.find(|(_, send)| send.status == Status::Sending && send.lease == Some(token));
    let job = job.map(|(send, of)| (send, of.attempts + 1));
    state.instances[i].recovery = Some(Found { token, job });
}

/// Without an outcome, a captured message was certainly not sent; with a real provider this is unknown.
pub fn take_over(model: &Delivering, state: &mut State, i: usize) {
    let Some(Found { token, job }) = state.instances[i].recovery.take() else { return };
    let outcome = match (model.provider, model.protocol.lost_claims) {
        (Provider::Realtime | Provider::Capture, _) | (_, LostClaims::AreNotAttempted) => {
            Outcome::NotAttempted
        }
        (Provider::Resend | Provider::Hold, LostClaims::AreDoubts) => Outcome::Unknown,
    };
    if let Some((send, number)) = job {
        write(model, state, &Settlement { by: i, send, token, number, outcome });
    }
    delete_claim(state, token);
}

fn delete_claim(state: &mut State, token: Token) {
    state.database.claims.retain(|claim| claim.token != token);
}

/// `settle_send.sql`: without the claim nothing changes.
fn write(model: &Delivering, state: &mut State, settlement: &Settlement) {
    let send = &state.database.sends[settlement.send];
    let is_ours = send.status == Status::Sending && send.lease == Some(settlement.token);
    let by_name = |token| {
        let mut claims = state.database.claims.iter();
        claims.any(|claim| Some(claim.token) == token && claim.instance == settlement.by)
    };
    let passes = match model.protocol.fence {
        Fence::Token => is_ours,
        Fence::InstanceName => is_ours || (send.status == Status::Sending && by_name(send.lease)),
        Fence::Status => send.status == Status::Sending,
        Fence::Nothing => true,
    };
    if !passes {
        return;
    }
    state.ledger.overwrote |= !is_ours;
    state.ledger.doubts += u8::from(settlement.outcome == Outcome::Unknown);
    let captures = model.provider == Provider::Capture && settlement.outcome == Outcome::Sent;
    state.database.kept += u8::from(captures);
    let send = &mut state.database.sends[settlement.send];
    send.status = after(settlement.outcome, settlement.number, model.provider);
    send.lease = None;
    send.attempts = settlement.number - u8::from(settlement.outcome == Outcome::NotAttempted);
}

/// The domain's `after`, for channels that are retried. The backoff is left out: a send may stay due for any time.
fn after(outcome: Outcome, number: u8, provider: Provider) -> Status {
    match outcome {
        Outcome::Sent => Status::Sent,
        Outcome::Unknown if provider == Provider::Hold => Status::InDoubt,
        Outcome::Retry | Outcome::Unknown if number >= MAX_ATTEMPTS => Status::Failed,
        Outcome::Retry | Outcome::Unknown | Outcome::NotAttempted => Status::Due,
    }
}
