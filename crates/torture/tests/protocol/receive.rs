//! Message → send, as in `pipeline/receive`: a transaction that skips existing sends, and the acknowledgement after it.

use crate::protocol::{Ack, Key, LEASE_TICKS, MAX_IN_FLIGHT, Provider};
use crate::state::{Attempt, Delivery, Phase, Receiver, Send, State, Status};
use crate::step::{Delivering, Haste, Permit, Step};

pub fn steps(provider: Provider, state: &State, i: usize, steps: &mut Vec<Step>) {
    let instance = &state.instances[i];
    match instance.receiver {
        Receiver::Idle if state.broker.ready > 0 => steps.push(Step::Deliver(i)),
        Receiver::Idle => {}
        Receiver::Holds(_) => {
            if instance.in_flight.len() < MAX_IN_FLIGHT && provider != Provider::Realtime {
                steps.extend(Haste::of(state).map(|haste| Step::Receive(i, Permit::Free(haste))));
            }
            steps.push(Step::Receive(i, Permit::None));
        }
        Receiver::Wrote(_) => steps.push(Step::Acknowledge(i)),
    }
}

pub fn deliver(ack: Ack, state: &mut State, i: usize) {
    state.broker.ready -= 1;
    state.instances[i].receiver = Receiver::Holds(match ack {
        Ack::AfterCommit => Delivery::Open,
        Ack::BeforeCommit => Delivery::Closed,
    });
}

/// `receive_send.sql`. Two instances that receive the same row at once do so one after the other, because the key makes
/// the second one wait.
pub fn receive(model: &Delivering, state: &mut State, i: usize, permit: Permit) {
    const MAX_SENDS: usize = 2;
    let delivery = state.instances[i].receiver.delivery().expect("a message is held");
    state.instances[i].receiver = Receiver::Wrote(delivery);
    let is_new = match model.protocol.key {
        Key::Unique => state.database.sends.is_empty(),
        Key::None => state.database.sends.len() < MAX_SENDS,
    };
    if !is_new {
        return;
    }
    let send = state.database.sends.len();
    if model.provider == Provider::Realtime {
        state.database.sends.push(Send { status: Status::Sent, lease: None, attempts: 1 });
        state.database.kept += 1;
        return;
    }
    state.database.sends.push(Send { status: Status::Due, lease: None, attempts: 0 });
    if let Permit::Free(haste) = permit {
        start(state, i, send, haste);
    }
}

/// Claims a send for an attempt of this instance, in the transaction that creates it or finds it due.
pub fn start(state: &mut State, i: usize, send: usize, haste: Haste) {
    let token = state.claim(i);
    let of = &mut state.database.sends[send];
    of.status = Status::Sending;
    of.lease = Some(token);
    let lease_left = match haste {
        Haste::Prompt => LEASE_TICKS,
        Haste::Slow => {
            state.faults.any -= 1;
            LEASE_TICKS - 1
        }
    };
    let number = of.attempts + 1;
    state.instances[i].in_flight.push(Attempt { send, token, number, lease_left, phase: Phase::Claiming });
}

/// A broken connection takes no acknowledgement. The message is then redelivered and skipped.
pub fn acknowledge(state: &mut State, i: usize) {
    state.instances[i].receiver = Receiver::Idle;
}
