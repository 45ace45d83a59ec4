//! Explains decisions without writing anything. It shows which users an event would reach under the current rules, and
//! what these rules decide for one user of a stored event.

use campanile_domain::event::{Event, Failure, NewEvent};
use campanile_domain::fan_out::{End, Page, Summary};
use campanile_domain::id::UserRef;
use campanile_domain::rules::decide::{Situation, Tally, decide as decide_channels};
use campanile_domain::rules::decision::Decision;
use campanile_domain::time::Timestamp;
use campanile_store::StoreError;

use crate::Engine;
use crate::blocking::run_blocking;
use crate::pipeline::decide::{ToDecide, decide};

/// What would be decided for an event. Nothing is written.
#[derive(Debug)]
pub struct Explanation {
    pub decisions: Vec<Decision>,
    pub summary: Option<Summary>,
    pub failure: Option<Failure>,
    /// Whether the event would reach more recipients than are shown.
    pub truncated: bool,
}

impl Engine {
    /// What would be decided for an event, now or at another time.
    pub async fn explain(
        &self,
        event: &NewEvent,
        at: Option<Timestamp>,
        limit: usize,
    ) -> Result<Explanation, StoreError> {
        let mut audience = self.store.read_audience().await?;
        let event = event.at(audience.now());
        let now = at.unwrap_or_else(|| audience.now());
        let rules = self.rules.current();
        let events = [ToDecide { event: &event, cursor: None }];
        let mut decided = decide(&rules, audience.as_mut(), &events, limit, now).await?;
        let nothing = Explanation { decisions: Vec::new(), summary: None, failure: None, truncated: false };
        Ok(match decided.pop().flatten() {
            None => nothing,
            Some((_, Err(failure))) => Explanation { failure: Some(failure), ..nothing },
            Some((_, Ok(plan))) => match plan.end {
                End::Finished(summary) => {
                    Explanation { decisions: plan.decisions, summary: Some(summary), ..nothing }
                }
                End::Continues(cursor) => Explanation {
                    decisions: plan.decisions,
                    summary: Some(cursor.summary),
                    truncated: true,
                    ..nothing
                },
                End::Failed(failure) => Explanation { failure: Some(failure), ..nothing },
            },
        })
    }

    /// What the current rules decide for one user of a stored event, or `None` if the event does not concern them.
    /// `max_recipients` is not applied: in a large audience the number of recipients before this user is unknown.
    pub async fn explain_user(&self, event: &Event, user: &UserRef) -> Result<Option<Decision>, StoreError> {
        let mut audience = self.store.read_audience().await?;
        let rules = self.rules.current();
        let situation = Situation { rules: &rules, event, now: audience.now() };
        let page = Page::of_user(user.clone()).asking_for_dead_addresses(situation);
        let Some(candidate) = audience.candidates(vec![page]).await?.into_iter().flatten().next() else {
            return Ok(None);
        };
        let targets = run_blocking(|| rules.targets(event, &event.document())).unwrap_or_default();
        let Some(target) = targets.iter().find(|target| target.includes(&candidate.recipient)) else {
            return Ok(None);
        };
        let entity = candidate.recipient.entity();
        let groups = audience.groups(entity.iter().cloned().collect()).await?;
        let member_of = candidate.recipient.group();
        let group = groups.get(&member_of).cloned().unwrap_or_default();
        let rulings =
            decide_channels(situation, &candidate, &member_of, &group, target.scope, &mut Tally::default());
        Ok(Some(Decision::new(&candidate.recipient, rulings, &target.audience)))
    }
}
