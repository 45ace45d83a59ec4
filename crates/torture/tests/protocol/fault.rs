//! Time and faults: crashes, stopped processes, cut connections, lost answers, a broker that lost its data.

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
        // It sends no heartbeats, so the broker gives up on it.
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

/// Whether the clock may advance. A process that is neither stopped nor waiting for the provider handles its claims at
/// once: slowness is modelled as being stopped, which is a fault. Publishers and receivers may be slow without a fault.
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

/// The process loses its memory and restarts; the broker notices at once. A process that stays away simply makes no
/// more steps. A pending request was accepted by the provider before the crash or never. Accepting it later would be
/// milder, because more doubts would be recorded by then.
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

/// The connection to the broker breaks. Unacknowledged messages go back to the queue, and unconfirmed ones are
/// published again.
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

/// The claim is committed, but its answer is lost.
pub fn lose_claim_answer(state: &mut State, i: usize, a: usize) {
    state.faults.any -= 1;
    state.instances[i].in_flight.remove(a);
}

/// The outcome is committed, but its answer is lost, so it will be written again.
pub fn lose_settle_answer(model: &Delivering, state: &mut State, i: usize, a: usize) {
    state.faults.any -= 1;
    settle::write_attempt(model, state, i, a);
}

/// The queue is lost. Confirms that were sent before may still arrive.
pub fn lose_queue(state: &mut State) {
    state.faults.losses -= 1;
    state.broker.ready = 0;
    state.broker.queue = Queue::Lost;
    for i in 0..state.instances.len() {
        close_delivery(state, i);
    }
}
