//! Time, and what goes wrong: crashes, stopped processes, cut connections, lost answers, a broker without its data.

use crate::protocol::Clock;
use crate::state::{Attempt, Chunk, Delivery, Instance, Phase, Publisher, Queue, Receiver, State};
use crate::step::{Delivering, Step};
use crate::{publish, settle};

pub fn steps(state: &State, i: usize, steps: &mut Vec<Step>) {
    let instance = &state.instances[i];
    let is_connected = matches!(instance.publisher, Publisher::Published { .. })
        || instance.receiver.delivery() == Some(Delivery::Open);
    if instance.is_stopped {
        steps.push(Step::Wake(i));
        // It sends no heartbeats, so the broker will not wait for it for ever.
        if is_connected {
            steps.push(Step::NoticeSilence(i));
        }
    }
    if state.faults.any == 0 {
        return;
    }
    if *instance != Instance::default() {
        steps.push(Step::Crash(i));
    }
    if instance.is_stopped {
        return;
    }
    steps.push(Step::Stop(i));
    if is_connected {
        steps.push(Step::Cut(i));
    }
    for (a, attempt) in instance.in_flight.iter().enumerate() {
        match attempt.phase {
            Phase::Claiming => steps.push(Step::LoseClaimAnswer(i, a)),
            Phase::Ended(_) => steps.push(Step::LoseSettleAnswer(i, a)),
            Phase::Waits | Phase::Calls { .. } => {}
        }
    }
}

pub fn steps_of_broker(state: &State, steps: &mut Vec<Step>) {
    if state.faults.losses > 0 {
        steps.push(Step::LoseQueue);
    }
}

/// A process that is neither stopped nor waiting for the provider does at once what it has to do with its claims; to be
/// slow is to be stopped, which counts as a fault. Publishers and receivers may be slow as they like.
pub fn time_may_pass(state: &State) -> bool {
    state.instances.iter().filter(|instance| !instance.is_stopped).all(|instance| {
        let waits = |attempt: &Attempt| matches!(attempt.phase, Phase::Calls { left: 1.., .. });
        instance.recovery.is_none() && instance.in_flight.iter().all(waits)
    })
}

pub fn tick(clock: Clock, state: &mut State) {
    if let Some(Chunk::Leased(lease)) = &mut state.database.chunk {
        lease.tick();
    }
    for claim in &mut state.database.claims {
        claim.lease.tick();
    }
    for instance in &mut state.instances {
        if instance.is_stopped && clock == Clock::StopsWithProcess {
            continue;
        }
        for attempt in &mut instance.in_flight {
            attempt.lease_left = attempt.lease_left.saturating_sub(1);
            if let Phase::Calls { left, .. } = &mut attempt.phase {
                *left = left.saturating_sub(1);
            }
        }
    }
}

/// All memory is gone, and the process starts again; the broker notices at once. A process that stays away is one that
/// makes no more steps. What it had asked the provider was accepted before or never: accepted later would only be
/// milder, as more doubts have been written down by then.
pub fn crash(state: &mut State, i: usize) {
    state.faults.any -= 1;
    redeliver(state, i);
    state.instances[i] = Instance::default();
}

pub fn stop(state: &mut State, i: usize) {
    state.faults.any -= 1;
    state.instances[i].is_stopped = true;
    for attempt in &mut state.instances[i].in_flight {
        if let Phase::Calls { was_stopped, .. } = &mut attempt.phase {
            *was_stopped = true;
        }
    }
}

pub fn cut_by_chance(state: &mut State, i: usize) {
    state.faults.any -= 1;
    cut(state, i);
}

/// The connection to the broker breaks: what is not acknowledged goes back, what is not confirmed is published again.
pub fn cut(state: &mut State, i: usize) {
    redeliver(state, i);
    publish::give_back(state, i);
}

fn redeliver(state: &mut State, i: usize) {
    if state.instances[i].receiver.delivery() == Some(Delivery::Open) {
        state.broker.ready += 1;
        close_delivery(state, i);
    }
}

fn close_delivery(state: &mut State, i: usize) {
    if let Receiver::Holds(delivery) | Receiver::Wrote(delivery) = &mut state.instances[i].receiver {
        *delivery = Delivery::Closed;
    }
}

/// The claim is committed, and nobody knows of it.
pub fn lose_claim_answer(state: &mut State, i: usize, a: usize) {
    state.faults.any -= 1;
    state.instances[i].in_flight.remove(a);
}

/// The outcome is committed, and will be written once more.
pub fn lose_settle_answer(model: &Delivering, state: &mut State, i: usize, a: usize) {
    state.faults.any -= 1;
    settle::write_attempt(model, state, i, a);
}

/// Confirms that are on their way may still arrive.
pub fn lose_queue(state: &mut State) {
    state.faults.losses -= 1;
    state.broker.ready = 0;
    state.broker.queue = Queue::Lost;
    for i in 0..state.instances.len() {
        close_delivery(state, i);
    }
}
