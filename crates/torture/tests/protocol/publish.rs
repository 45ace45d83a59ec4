//! Chunk → queue, as in `pipeline/publish`, and rows that the broker lost, as in `recovery`. Chunks are leased and not
//! fenced: at worst a late holder publishes again.

use crate::protocol::{QUEUE_MESSAGES, Sweep};
use crate::state::{Chunk, Lease, Publisher, Queue, State};
use crate::step::{Delivering, Step};

pub fn steps(model: &Delivering, state: &State, i: usize, steps: &mut Vec<Step>) {
    match state.instances[i].publisher {
        Publisher::Idle if is_free(state.database.chunk.as_ref()) && has_room(state) => {
            steps.push(Step::ClaimChunk(i));
        }
        Publisher::Idle => {}
        Publisher::Holds { .. } if model.deletes_chunk_early() => steps.push(Step::DeleteChunk(i)),
        Publisher::Holds { .. } | Publisher::Forgot => steps.push(Step::Publish(i)),
        Publisher::Published { .. } => steps.push(Step::Confirm(i)),
    }
    if state.broker.queue == Queue::Lost {
        steps.push(Step::MakeGood(i));
    } else if model.protocol.sweep == Sweep::Hourly
        && state.broker.queue == Queue::MadeAgain
        && is_nowhere(state)
    {
        steps.push(Step::SweepUp(i));
    }
}

/// `claim_chunk.sql`.
fn is_free(chunk: Option<&Chunk>) -> bool {
    match chunk {
        None => false,
        Some(Chunk::Waiting) => true,
        Some(Chunk::Leased(lease)) => lease.has_passed(),
    }
}

fn has_room(state: &State) -> bool {
    state.broker.queue != Queue::Lost && state.broker.ready < QUEUE_MESSAGES
}

/// `lost_rows.sql`: neither in a chunk nor received.
fn is_nowhere(state: &State) -> bool {
    state.database.chunk.is_none() && state.database.sends.is_empty()
}

/// Received rows are left out; a chunk without rows counts as published.
pub fn claim_chunk(state: &mut State, i: usize) {
    state.database.chunk = Some(Chunk::Leased(Lease::new()));
    state.instances[i].publisher = if state.database.sends.is_empty() {
        Publisher::Holds { chunk_is_there: true }
    } else {
        Publisher::Published { chunk_is_there: true }
    };
}

/// The mistake of deleting a chunk when it is published.
pub fn delete_too_early(state: &mut State, i: usize) {
    delete(state, i);
    state.instances[i].publisher = Publisher::Forgot;
}

/// A full or missing queue returns the chunk. A late publisher thereby releases a chunk that somebody else holds.
pub fn publish(state: &mut State, i: usize) {
    let publisher = &mut state.instances[i].publisher;
    let before = *publisher;
    *publisher = Publisher::Idle;
    if has_room(state) {
        state.broker.ready += 1;
        if let Publisher::Holds { chunk_is_there } = before {
            state.instances[i].publisher = Publisher::Published { chunk_is_there };
        }
    } else if before == (Publisher::Holds { chunk_is_there: true }) {
        state.database.chunk = Some(Chunk::Waiting);
    }
}

/// The confirm arrives, and the chunk is deleted. This is one step, because a crash in between equals a crash before.
pub fn confirm(state: &mut State, i: usize) {
    delete(state, i);
    state.instances[i].publisher = Publisher::Idle;
}

/// Deletes by id: only the claimed chunk, whoever holds it now.
fn delete(state: &mut State, i: usize) {
    if let Publisher::Holds { chunk_is_there: true } | Publisher::Published { chunk_is_there: true } =
        state.instances[i].publisher
    {
        state.database.chunk = None;
        for instance in &mut state.instances {
            if let Publisher::Holds { chunk_is_there } | Publisher::Published { chunk_is_there } =
                &mut instance.publisher
            {
                *chunk_is_there = false;
            }
        }
    }
}

/// The connection broke before the confirm: the chunk waits again.
pub fn give_back(state: &mut State, i: usize) {
    if let Publisher::Published { chunk_is_there } = state.instances[i].publisher {
        state.instances[i].publisher = Publisher::Idle;
        if chunk_is_there {
            state.database.chunk = Some(Chunk::Waiting);
        }
    }
}

/// A lost queue is created again after its rows are in chunks again.
pub fn make_good(state: &mut State) {
    if is_nowhere(state) {
        republish(state);
    }
    state.broker.queue = Queue::MadeAgain;
}

/// Puts the row into a new chunk, which no old holder knows.
pub fn republish(state: &mut State) {
    state.database.chunk = Some(Chunk::Waiting);
}
