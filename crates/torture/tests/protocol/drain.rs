//! Checks that one instance that is left alone settles the send. The other instance is stopped forever, and no further
//! fault happens.
//!
//! "Nothing is lost" is often checked as "eventually". A checker that merges paths can check that only where no path
//! has a cycle, but here sends are released and claimed again without end. So this asks about every single state: does
//! the remaining instance settle the send from here, without help? That is stronger than the existence of some path.

use stateright::Model;

use crate::state::{INSTANCES, State};
use crate::step::{Delivering, Step};

/// Far more steps than are needed from any state.
const MAX_STEPS: usize = 60;

pub fn whoever_is_left_settles_it(model: &Delivering, state: &State) -> bool {
    // The survivor must keep its number.
    let model = Delivering { merges_mirror_images: false, ..*model };
    (0..INSTANCES).all(|survivor| settles_alone(&model, state.clone(), survivor))
}

fn settles_alone(model: &Delivering, mut state: State, survivor: usize) -> bool {
    for (i, instance) in state.instances.iter_mut().enumerate() {
        instance.is_stopped = i != survivor;
    }
    let mut steps = Vec::new();
    for _ in 0..MAX_STEPS {
        if state.is_settled() {
            return true;
        }
        steps.clear();
        model.actions(&state, &mut steps);
        steps.retain(|&step| is_routine(step, survivor));
        steps.sort_unstable();
        let Some(next) = steps.iter().find_map(|&step| model.next_state(&state, step)) else { return false };
        state = next;
    }
    false
}

/// The steps that the survivor makes by itself, and those of time and of the broker about the other instance.
fn is_routine(step: Step, survivor: usize) -> bool {
    match step {
        Step::Tick => true,
        Step::NoticeSilence(i) => i != survivor,
        Step::AnswerClaim(i, _)
        | Step::Begin(i, _)
        | Step::Accept(i, _)
        | Step::AnswerSent(i, _)
        | Step::Settle(i, _)
        | Step::TakeOver(i)
        | Step::FindExpired(i, _)
        | Step::ClaimDue(i, _)
        | Step::Receive(i, _)
        | Step::Acknowledge(i)
        | Step::Deliver(i)
        | Step::Confirm(i)
        | Step::DeleteChunk(i)
        | Step::Publish(i)
        | Step::ClaimChunk(i)
        | Step::MakeGood(i)
        | Step::SweepUp(i) => i == survivor,
        Step::Wake(_)
        | Step::AnswerRetry(..)
        | Step::AnswerNothing(..)
        | Step::Crash(_)
        | Step::Stop(_)
        | Step::Cut(_)
        | Step::LoseClaimAnswer(..)
        | Step::LoseSettleAnswer(..)
        | Step::LoseQueue => false,
    }
}
