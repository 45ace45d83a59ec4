//! Decides which recipients get an event, over which channels. The domain makes the decision. This module loads the
//! pages of recipients that it needs, for a whole batch of events at once.

mod step_clock;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use campanile_domain::event::{BodyHash, Event, Failure};
use campanile_domain::fan_out::{Cursor, Page, Plan, Progress};
use campanile_domain::id::EntityRef;
use campanile_domain::people::recipient::{Candidate, Group};
use campanile_domain::rules::Rules;
use campanile_domain::time::Timestamp;
use campanile_store::{AudienceReader, StoreError};

use crate::blocking::run_blocking;
use step_clock::StepClock;

/// What the fan-out of an event will write, with the event's hash.
pub type Decided = (BodyHash, Result<Plan, Failure>);

/// An event whose audience is decided, from its cursor on.
#[derive(Debug)]
pub struct ToDecide<'a> {
    pub event: &'a Event,
    pub cursor: Option<&'a Cursor>,
}

/// A decision in progress, with the event's hash. `None` if the event is deferred to a later step.
type Undecided<'a> = Option<(BodyHash, Result<Progress<'a>, Failure>)>;

/// Decides what each event's fan-out will write. It considers at most `recipient_limit` recipients of each event, in as
/// few queries as the audiences allow. When the step's time is over, the remaining events are deferred and get `None`.
/// The first event is never deferred.
pub async fn decide(
    rules: &Rules,
    audience: &mut dyn AudienceReader,
    events: &[ToDecide<'_>],
    recipient_limit: usize,
    now: Timestamp,
) -> Result<Vec<Option<Decided>>, StoreError> {
    let mut clock = StepClock::begin();
    let mut all: Vec<Undecided> = Vec::with_capacity(events.len());
    for event in events {
        let is_put_off = !all.is_empty() && clock.is_over();
        all.push((!is_put_off).then(|| clock.run(|| begin(rules, event, recipient_limit, now))));
    }
    let mut groups: HashMap<EntityRef, Group> = HashMap::new();
    loop {
        let next_page = |undecided: &Undecided| undecided.as_ref()?.1.as_ref().ok()?.next_page();
        let (waiting, pages): (Vec<usize>, Vec<Page>) =
            all.iter().enumerate().filter_map(|(index, one)| Some((index, next_page(one)?))).unzip();
        if waiting.is_empty() {
            break;
        }
        let candidates = clock.wait(audience.candidates(pages)).await?;
        let mut unknown: Vec<EntityRef> = candidates
            .iter()
            .flatten()
            .filter_map(|c| c.recipient.entity())
            .filter(|entity| !groups.contains_key(entity))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            let found = clock.wait(audience.groups(unknown.clone())).await?;
            groups.extend(unknown.into_iter().map(|entity| (entity, Group::default())));
            groups.extend(found);
        }
        for (nth, (index, candidates)) in waiting.into_iter().zip(&candidates).enumerate() {
            if nth > 0 && clock.is_over() {
                all[index] = None;
            }
            let Some((_, Ok(progress))) = &mut all[index] else { continue };
            // A panic is the fault of this event's data, and counts as a failure of the event.
            catch_unwind(AssertUnwindSafe(|| consider(progress, candidates, &groups, &clock))).map_err(
                |_| StoreError::Refused("a panic while recipients and channels were decided".into()),
            )?;
        }
    }
    let finished =
        |(hash, progress): (BodyHash, Result<Progress, Failure>)| (hash, progress.map(Progress::finish));
    Ok(all.into_iter().map(|undecided| undecided.map(finished)).collect())
}

fn begin<'a>(
    rules: &'a Rules,
    ToDecide { event, cursor }: &ToDecide<'a>,
    recipient_limit: usize,
    now: Timestamp,
) -> (BodyHash, Result<Progress<'a>, Failure>) {
    let document = event.document();
    let cursor = cursor.cloned().unwrap_or_default();
    let progress = Progress::new(rules, event, &document, cursor, recipient_limit, now);
    (event.body_hash_by(&document), progress)
}

/// Considers a page as far as the step's time allows. Long work continues by `run_blocking`.
fn consider(
    progress: &mut Progress,
    page: &[Candidate],
    groups: &HashMap<EntityRef, Group>,
    clock: &StepClock,
) {
    let mut considered = 0;
    if !clock.is_long() {
        considered = progress.consider(page, groups, || clock.is_long());
    }
    if considered < page.len() {
        considered += run_blocking(|| progress.consider(&page[considered..], groups, || clock.is_over()));
    }
    progress.turn_page(page, considered);
}
