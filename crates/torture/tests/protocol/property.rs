//! What must always hold, and what must happen sometimes, to ensure that the rest does not hold only because nothing
//! happens.

use stateright::Property;

use crate::drain;
use crate::protocol::{Faults, Provider};
use crate::state::{
    Attempt, Chunk, Delivery, Instance, Outcome, Phase, Publisher, Queue, Receiver, Send, State, Status,
};
use crate::step::Delivering;

pub const KEPT_ONCE: &str = "what is written with its outcome is there at most once";
pub const TWICE_ONLY_IN_DOUBT: &str = "nobody is told more often than once and once for each declared doubt";
pub const TOLD_ONCE: &str = "nobody is told twice where doubts are held";
pub const BEGINS_IN_TIME: &str = "no call begins under a lease that has passed";
pub const REACHES_IN_TIME: &str =
    "a call that nobody stopped midway reaches the provider under its own lease";
pub const OWN_CLAIM: &str = "an outcome is written only under its own claim";
pub const SENT_IS_TRUE: &str = "what is called sent was accepted or kept";
pub const FINDABLE: &str = "what is being sent has a claim that will expire";
pub const SOMEWHERE: &str = "what is not received waits in a chunk or lies at the broker";
pub const SETTLED: &str = "whoever is left settles it";

pub fn of(provider: Provider, faults: Faults) -> Vec<Property<Delivering>> {
    let mut properties = always();
    properties.extend(match provider {
        Provider::Realtime if faults.losses > 0 => on_the_way().into_iter().chain([made_good()]).collect(),
        Provider::Realtime => on_the_way(),
        Provider::Capture => while_sending().into_iter().chain([kept_once()]).collect(),
        Provider::Resend => while_sending().into_iter().chain(where_doubts_are_resent()).collect(),
        Provider::Hold => while_sending().into_iter().chain(where_doubts_are_held()).collect(),
    });
    properties
}

fn always() -> Vec<Property<Delivering>> {
    vec![
        Property::always(BEGINS_IN_TIME, |_, state: &State| !state.ledger.began_late),
        Property::always(REACHES_IN_TIME, |_, state: &State| !state.ledger.reached_late),
        Property::always(OWN_CLAIM, |_, state: &State| !state.ledger.overwrote),
        Property::always(SENT_IS_TRUE, |_, state: &State| {
            let sent = state.database.sends.iter().filter(|send| send.status == Status::Sent).count();
            sent <= usize::from(state.ledger.accepted) + usize::from(state.database.kept)
        }),
        Property::always(FINDABLE, |_, state: &State| {
            state.database.sends.iter().all(|send| is_findable(state, send))
        }),
        Property::always(SOMEWHERE, |_, state: &State| is_somewhere(state)),
        Property::always(SETTLED, drain::whoever_is_left_settles_it),
        Property::sometimes("it is sent", |_, state: &State| has(state, Status::Sent)),
        Property::sometimes("a message comes again after its row was received", |_, state: &State| {
            let is_held = |receiver| matches!(receiver, Receiver::Holds(Delivery::Open));
            !state.database.sends.is_empty() && state.instances.iter().any(|i| is_held(i.receiver))
        }),
    ]
}

fn kept_once() -> Property<Delivering> {
    Property::always(KEPT_ONCE, |_, state: &State| state.database.kept <= 1)
}

fn on_the_way() -> Vec<Property<Delivering>> {
    vec![
        kept_once(),
        Property::sometimes("two instances publish the same chunk", |_, state: &State| {
            state.instances.iter().all(|i| matches!(i.publisher, Publisher::Published { .. }))
        }),
        Property::sometimes("a late holder frees or deletes what it lost", |_, state: &State| {
            let holds = |i: &Instance| i.publisher == Publisher::Published { chunk_is_there: true };
            state.database.chunk == Some(Chunk::Waiting) && state.instances.iter().any(holds)
        }),
    ]
}

fn made_good() -> Property<Delivering> {
    Property::sometimes("a lost row is in a chunk again", |_, state: &State| {
        state.broker.queue == Queue::MadeAgain && state.database.chunk.is_some()
    })
}

fn while_sending() -> Vec<Property<Delivering>> {
    vec![
        Property::sometimes("a claim is taken over from a holder that lives", |_, state: &State| {
            late_attempts(state).next().is_some()
        }),
        Property::sometimes("a late success is about to be refused", |_, state: &State| {
            late_attempts(state).any(|late| late.phase == Phase::Ended(Outcome::Sent))
        }),
        Property::sometimes("a process that slept past its lease lets its send go", |_, state: &State| {
            late_attempts(state).any(|late| late.phase == Phase::Ended(Outcome::NotAttempted))
        }),
    ]
}

fn where_doubts_are_resent() -> Vec<Property<Delivering>> {
    vec![
        Property::always(TWICE_ONLY_IN_DOUBT, |_, state: &State| {
            state.ledger.accepted <= 1 + state.ledger.doubts
        }),
        Property::sometimes("a doubt makes somebody be told twice", |_, state: &State| {
            state.ledger.accepted == 2
        }),
        Property::sometimes("a doubt is resent and was unfounded", |_, state: &State| {
            state.ledger.accepted == 1 && state.ledger.doubts == 1 && has(state, Status::Sent)
        }),
        Property::sometimes("attempts are used up", |_, state: &State| has(state, Status::Failed)),
        Property::sometimes("an instance holds a send under an old and a new claim", |_, state: &State| {
            state.instances.iter().any(|instance| instance.in_flight.len() == 2)
        }),
    ]
}

fn where_doubts_are_held() -> Vec<Property<Delivering>> {
    vec![
        Property::always(TOLD_ONCE, |_, state: &State| state.ledger.accepted <= 1),
        Property::sometimes("a doubt is held that was accepted", |_, state: &State| {
            has(state, Status::InDoubt) && state.ledger.accepted == 1
        }),
        Property::sometimes("a doubt is held that was not", |_, state: &State| {
            has(state, Status::InDoubt) && state.ledger.accepted == 0
        }),
    ]
}

fn has(state: &State, status: Status) -> bool {
    state.database.sends.iter().any(|send| send.status == status)
}

/// Attempts that have lost their claim.
fn late_attempts(state: &State) -> impl Iterator<Item = &Attempt> {
    let attempts = state.instances.iter().flat_map(|instance| &instance.in_flight);
    attempts.filter(|attempt| state.database.sends[attempt.send].lease != Some(attempt.token))
}

fn is_findable(state: &State, send: &Send) -> bool {
    let mut claims = state.database.claims.iter();
    send.status != Status::Sending || claims.any(|claim| Some(claim.token) == send.lease)
}

/// Whether the row is somewhere. Losses of the broker are repaired by `losses` and the sweep; until then the row is
/// nowhere.
fn is_somewhere(state: &State) -> bool {
    let mut receivers = state.instances.iter().map(|instance| instance.receiver);
    !state.database.sends.is_empty()
        || state.database.chunk.is_some()
        || state.broker.ready > 0
        || receivers.any(|receiver| receiver.delivery() == Some(Delivery::Open))
        || state.broker.queue != Queue::Intact
}
