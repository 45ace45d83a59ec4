//! A model of the protocol by which a row is published, received, claimed, sent and settled. The checker tries every
//! order of steps. Tests with real processes meet only the orders that happen to occur; this meets all of them, for one
//! row, two instances and two faults.
//!
//! # What is modelled
//!
//! Each transaction is one step, and so is everything that a process can die before or after. Modules are named like
//! the stages.
//!
//! - Publish: a chunk waits or is leased, is published, confirmed, deleted; chunks are not fenced. A full or missing
//!   queue returns it. The broker may lose everything once; rows without a send then go into a new chunk.
//! - Receive: inserts the send unless it exists, claimed or due, and acknowledges. If the connection breaks before
//!   that, the message is redelivered.
//! - Send: reads its own clock before the claim, and again before the call. The provider accepts, declines, or is
//!   silent at will, even while the calling process is stopped. It keeps a ledger that no instance sees.
//! - Settle and recover: one fenced update. Recovery reads expired claims in one step and takes them over in another.
//! - Faults: a crash; a stop (`SIGSTOP`) with a wake at any later time; a cut connection to the broker; a lost answer
//!   to the commit of a claim or of an outcome, which is then written again; a delay between reading the clock and the
//!   commit. Each run has two of these, of any kinds, or one and the loss of the broker's data.
//!
//! The path to the send and the send itself are checked separately, because together they have too many states. The
//! first part goes from the chunk to a send that is created `SENT`, as for `WEBSOCKET`. The second starts from a
//! published message, with `capture`, and with a provider whose doubts are resent or held. The parts share only the
//! queue and the send's key. Duplicate messages are in both: in the second part by redelivery.
//!
//! # What is left out
//!
//! - More rows, batches, several sends under one claim, lanes, backoff, permanent errors. With batches the code can be
//!   wrong although the protocol is right, so they are covered by tests of the code.
//! - Clocks of different speeds: a tick is equally long for the database and each process.
//! - Slowness without a fault: a running process handles its claims before the next tick, and ends a call at its
//!   deadline. Slowness is modelled as being stopped. Publishers and receivers may be slow without a fault.
//! - Overlapping transactions. The model assumes that the database makes a fenced update, and an insert under a unique
//!   key, atomic.
//!
//! # What is promised, and what is not
//!
//! The properties are in `property.rs`. Two need an explanation. "Nothing is lost" is asked of every state, not of
//! paths: would one instance alone settle the send from here, if the other never woke again (`drain.rs`)? And "no call
//! begins under an expired lease" is about reading the clock. No protocol can prevent that a process is stopped between
//! reading the clock and sending its bytes; the provider then gets the request after the lease. Even then the count is
//! right, because whoever took the claim over has recorded a doubt.
//!
//! # What the mistakes show
//!
//! A model that finds nothing proves little. So each rule of the protocol is also left out once, and the checker must
//! find the promise that this breaks. Each test also gives a path to it.
//!
//! | mistake | breaks |
//! |---|---|
//! | no fence | a woken process stores a captured message a second time |
//! | a fence by the status alone, or by the instance's name | the outcome of an old claim ends a new one |
//! | acknowledged before the commit; chunk deleted before the confirm | after a crash in between the row is nowhere |
//! | lease not measured before the call, or from the claim's answer on | a woken process calls under a lost lease |
//! | lease measured by a clock that stops with the process | the same |
//! | no unique key | a redelivered message is sent again |
//! | an expired claim taken for "not attempted" | a recipient gets a duplicate without a recorded doubt |
//! | no sweep | a confirm that is recorded after a loss was repaired leaves a row that nothing moves |

mod drain;
mod fault;
mod property;
mod protocol;
mod publish;
mod receive;
mod send;
mod settle;
mod state;
mod step;

use std::collections::BTreeSet;

use protocol::{
    Ack, BeforeCall, ChunkIsDeleted, Clock, Faults, Fence, Key, LeaseCounts, LostClaims, Protocol, Provider,
    Sweep,
};
use stateright::{Checker, HasDiscoveries, Model};
use step::Delivering;
use step::Haste::Prompt;
use step::Permit;
use step::Step::{
    self, Accept, AnswerClaim, Begin, ClaimChunk, ClaimDue, Confirm, Crash, Cut, DeleteChunk, Deliver,
    FindExpired, LoseQueue, MakeGood, Publish, Receive, Settle, Stop, TakeOver, Tick, Wake,
};

const TWO_FAULTS: Faults = Faults { any: 2, losses: 0 };
const ONE_FAULT: Faults = Faults { any: 1, losses: 0 };
const A_LOSS: Faults = Faults { any: 0, losses: 1 };
const A_LOSS_AND_ANOTHER_FAULT: Faults = Faults { any: 1, losses: 1 };

/// Visits every state, without limits of depth, number or time. The search continues while all promises hold.
fn holds(provider: Provider, faults: Faults, at_least_states: usize) {
    let model = Delivering { protocol: Protocol::RIGHT, provider, faults, merges_mirror_images: true };
    let checker = model.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
    let states = checker.unique_state_count();
    println!("{provider:?}, {faults:?}: {states} states, {} steps deep", checker.max_depth());
    assert!(states >= at_least_states, "{states} states are too few: something does not happen any more");
}

#[test]
fn every_row_arrives_once_whatever_two_faults_do() {
    holds(Provider::Realtime, TWO_FAULTS, 5_000);
}

#[test]
fn every_row_arrives_once_though_the_broker_loses_everything() {
    holds(Provider::Realtime, A_LOSS_AND_ANOTHER_FAULT, 15_000);
}

#[test]
fn what_is_captured_is_kept_once_whatever_two_faults_do() {
    holds(Provider::Capture, TWO_FAULTS, 30_000);
}

#[test]
fn whoever_is_told_twice_was_in_doubt_where_doubts_are_resent() {
    holds(Provider::Resend, TWO_FAULTS, 150_000);
}

#[test]
fn nobody_is_told_twice_where_doubts_are_held() {
    holds(Provider::Hold, TWO_FAULTS, 30_000);
}

/// A mistake, and the conditions under which it is checked.
struct Mistake {
    protocol: Protocol,
    provider: Provider,
    faults: Faults,
}

impl Mistake {
    /// One fault is enough for each mistake.
    fn new(protocol: Protocol, provider: Provider) -> Self {
        Mistake { protocol, provider, faults: ONE_FAULT }
    }

    /// Asserts that the checker finds the broken promise by itself, and that this path is one of those that break it.
    fn breaks(&self, promise: &'static str, way: &[&[Step]]) {
        let Mistake { protocol, provider, faults } = *self;
        let model = Delivering { protocol, provider, faults, merges_mirror_images: false };
        let found = HasDiscoveries::AnyOf(BTreeSet::from([promise]));
        let checker = model.checker().finish_when(found).spawn_bfs().join();
        checker.assert_discovery(promise, way.concat());
    }
}

/// The first instance receives the message, claims its send, and gets the answer.
const RECEIVED: &[Step] = &[Deliver(0), Receive(0, Permit::Free(Prompt)), AnswerClaim(0, 0)];
/// The first instance is stopped, and its lease expires.
const SLEEPS: &[Step] = &[Stop(0), Tick, Tick, Tick];
/// The second instance notices.
const TAKEN_OVER: &[Step] = &[FindExpired(1, 0), TakeOver(1)];
const CALLS_AGAIN: &[Step] = &[ClaimDue(1, Prompt), AnswerClaim(1, 0), Begin(1, 0)];
const PUBLISHED: &[Step] = &[ClaimChunk(0), Publish(0), Confirm(0)];

#[test]
fn without_a_fence_a_woken_process_keeps_a_message_again() {
    let protocol = Protocol { fence: Fence::Nothing, ..Protocol::RIGHT };
    let captured = &[RECEIVED, &[Begin(0, 0)], SLEEPS, TAKEN_OVER, CALLS_AGAIN, &[Settle(1, 0)]].concat();
    Mistake::new(protocol, Provider::Capture)
        .breaks(property::KEPT_ONCE, &[captured, &[Wake(0), Settle(0, 0)]]);
}

#[test]
fn a_fence_by_status_lets_an_old_outcome_end_a_new_claim() {
    let protocol = Protocol { fence: Fence::Status, ..Protocol::RIGHT };
    let claimed_again = &[RECEIVED, &[Begin(0, 0)], SLEEPS, TAKEN_OVER, CALLS_AGAIN].concat();
    Mistake::new(protocol, Provider::Capture)
        .breaks(property::OWN_CLAIM, &[claimed_again, &[Wake(0), Settle(0, 0)]]);
}

#[test]
fn a_fence_by_the_name_of_the_instance_lets_its_old_outcome_end_its_new_claim() {
    let protocol = Protocol { fence: Fence::InstanceName, ..Protocol::RIGHT };
    let taken_over = &[RECEIVED, &[Begin(0, 0)], SLEEPS, TAKEN_OVER].concat();
    Mistake::new(protocol, Provider::Capture)
        .breaks(property::OWN_CLAIM, &[taken_over, &[Wake(0), ClaimDue(0, Prompt), Settle(0, 0)]]);
}

#[test]
fn an_acknowledgement_before_the_commit_loses_the_row() {
    let protocol = Protocol { ack: Ack::BeforeCommit, ..Protocol::RIGHT };
    let mistake = Mistake::new(protocol, Provider::Realtime);
    let crashed = &[PUBLISHED, &[Deliver(0), Crash(0)]];
    mistake.breaks(property::SOMEWHERE, crashed);
    mistake.breaks(property::SETTLED, crashed);
}

#[test]
fn a_chunk_that_is_deleted_before_the_confirm_loses_the_row() {
    let protocol = Protocol { chunk: ChunkIsDeleted::BeforeConfirm, ..Protocol::RIGHT };
    let mistake = Mistake::new(protocol, Provider::Realtime);
    let crashed: &[&[Step]] = &[&[ClaimChunk(0), DeleteChunk(0), Crash(0)]];
    mistake.breaks(property::SOMEWHERE, crashed);
    mistake.breaks(property::SETTLED, crashed);
}

#[test]
fn a_lease_that_is_not_measured_lets_a_woken_process_call_beside_its_successor() {
    let protocol = Protocol { before_call: BeforeCall::Nothing, ..Protocol::RIGHT };
    let woken = &[RECEIVED, SLEEPS, TAKEN_OVER, CALLS_AGAIN, &[Wake(0), Begin(0, 0)]].concat();
    let mistake = Mistake::new(protocol, Provider::Resend);
    mistake.breaks(property::BEGINS_IN_TIME, &[woken]);
    mistake.breaks(property::REACHES_IN_TIME, &[woken, &[Accept(0, 0)]]);
}

#[test]
fn a_lease_that_is_measured_from_the_answer_on_lets_a_woken_process_begin_a_call() {
    let protocol = Protocol { lease_counts: LeaseCounts::FromAnswer, ..Protocol::RIGHT };
    let committed = &[Deliver(0), Receive(0, Permit::Free(Prompt))];
    Mistake::new(protocol, Provider::Resend)
        .breaks(property::BEGINS_IN_TIME, &[committed, SLEEPS, &[Wake(0), AnswerClaim(0, 0), Begin(0, 0)]]);
}

#[test]
fn a_clock_that_stops_with_the_process_lets_it_begin_a_call() {
    let protocol = Protocol { clock: Clock::StopsWithProcess, ..Protocol::RIGHT };
    Mistake::new(protocol, Provider::Resend)
        .breaks(property::BEGINS_IN_TIME, &[RECEIVED, SLEEPS, &[Wake(0), Begin(0, 0)]]);
}

#[test]
fn without_a_unique_key_a_redelivered_message_is_sent_again() {
    let protocol = Protocol { key: Key::None, ..Protocol::RIGHT };
    let twice = [Deliver(0), Receive(0, Permit::None), Cut(0), Deliver(1), Receive(1, Permit::None)];
    Mistake::new(protocol, Provider::Realtime).breaks(property::KEPT_ONCE, &[PUBLISHED, &twice]);
    let again = [Cut(0), Deliver(1), Receive(1, Permit::Free(Prompt)), AnswerClaim(1, 0)];
    let told = [Begin(0, 0), Accept(0, 0), Begin(1, 0), Accept(1, 0)];
    Mistake::new(protocol, Provider::Resend)
        .breaks(property::TWICE_ONLY_IN_DOUBT, &[RECEIVED, &again, &told]);
}

#[test]
fn an_expired_claim_that_is_taken_for_not_attempted_hides_a_doubt() {
    let protocol = Protocol { lost_claims: LostClaims::AreNotAttempted, ..Protocol::RIGHT };
    let died = [Begin(0, 0), Accept(0, 0), Crash(0), Tick, Tick, Tick];
    let way = &[RECEIVED, &died, TAKEN_OVER, CALLS_AGAIN, &[Accept(1, 0)]];
    Mistake::new(protocol, Provider::Resend).breaks(property::TWICE_ONLY_IN_DOUBT, way);
    Mistake::new(protocol, Provider::Hold).breaks(property::TOLD_ONCE, way);
}

/// The second check after 10 s shortens the wait. For a publisher that is stopped longer there is only the sweep.
#[test]
fn without_the_sweep_a_confirm_that_is_noted_after_a_loss_leaves_a_row_lying() {
    let protocol = Protocol { sweep: Sweep::Never, ..Protocol::RIGHT };
    let mistake = Mistake { protocol, provider: Provider::Realtime, faults: A_LOSS };
    let noted_late: &[Step] = &[ClaimChunk(0), Publish(0), LoseQueue, MakeGood(1), Confirm(0)];
    mistake.breaks(property::SETTLED, &[noted_late]);
}
