//! What becomes of an event after one step of its fan-out: the state machines `event_outbox.status` and
//! `processed_event.status` of `docs/STATES.md`. Which step an event takes is decided in the fan-out; the store writes
//! what this module answers.

use std::borrow::Cow;

use crate::event::Failure;
use crate::fan_out::{Cursor, Summary};
use crate::status::{EventStatus, ProcessedStatus};

/// What one step of the fan-out did with an event.
#[derive(Debug)]
pub enum Step {
    /// Every recipient was considered.
    Finished(Summary),
    /// The audience goes on after the cursor.
    Continues(Cursor),
    /// The event can't be fanned out, and nobody was notified.
    Failed(Failure),
    /// The event can't go on, for example because its rule was deleted. The rows that were written before stay.
    Stopped { summary: Summary, failure: Failure },
    /// The id was processed before. Nobody is notified.
    Known,
    /// The event was cancelled, for this reason. The rows that were written before stay.
    Cancelled(String),
}

/// What the store writes of an event after a step.
#[derive(Debug, PartialEq)]
pub struct Transition<'a> {
    pub status: EventStatus,
    /// Where the next step goes on.
    pub cursor: Option<&'a Cursor>,
    /// The text of `last_error`.
    pub error: Option<String>,
    /// What is remembered of the id; nothing new of one that is known.
    pub processed: Option<(ProcessedStatus, Cow<'a, Summary>)>,
    /// Why the event needs an operator: it gets a dead letter.
    pub dead_letter: Option<&'a Failure>,
}

/// The only function that says what follows a step. `before` is the cursor from which the step went on.
pub fn after<'a>(step: &'a Step, before: Option<&'a Cursor>) -> Transition<'a> {
    let ends = |status, processed| Transition {
        status,
        cursor: None,
        error: None,
        processed: Some(processed),
        dead_letter: None,
    };
    match step {
        Step::Finished(summary) => {
            let status = if summary.sends == 0 { EventStatus::Processed } else { EventStatus::Published };
            ends(status, (ProcessedStatus::Success, Cow::Borrowed(summary)))
        }
        Step::Continues(cursor) => Transition {
            cursor: Some(cursor),
            ..ends(EventStatus::Pending, (ProcessedStatus::Processing, Cow::Borrowed(&cursor.summary)))
        },
        Step::Failed(failure) => Transition {
            error: Some(failure.to_string()),
            dead_letter: Some(failure),
            ..ends(EventStatus::Failed, (ProcessedStatus::Failed, Cow::Owned(Summary::default())))
        },
        Step::Stopped { summary, failure } => Transition {
            error: Some(failure.to_string()),
            dead_letter: Some(failure),
            ..ends(EventStatus::Published, (ProcessedStatus::Success, Cow::Borrowed(summary)))
        },
        Step::Known => Transition {
            status: EventStatus::Processed,
            cursor: None,
            error: None,
            processed: None,
            dead_letter: None,
        },
        Step::Cancelled(reason) => {
            // Rows that were written already are delivered, and close the event when they have arrived.
            let (status, summary) = match before.filter(|cursor| cursor.has_begun()) {
                Some(cursor) => (EventStatus::Published, Cow::Borrowed(&cursor.summary)),
                None => (EventStatus::Cancelled, Cow::Owned(Summary::default())),
            };
            Transition {
                error: Some(format!("CANCELLED: {reason}")),
                ..ends(status, (ProcessedStatus::Success, summary))
            }
        }
    }
}

/// Whether an event was decided before, by what is remembered of its id. `PROCESSING` without a cursor says that the
/// row was deleted and inserted again.
pub fn is_known(remembered: Option<ProcessedStatus>, cursor: Option<&Cursor>) -> bool {
    match remembered {
        Some(ProcessedStatus::Success) => true,
        Some(ProcessedStatus::Processing) => cursor.is_none(),
        Some(ProcessedStatus::Failed) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(sends: u64) -> Summary {
        Summary { recipients: 3, sends, ..Summary::default() }
    }

    fn cursor() -> Cursor {
        let mut cursor = Cursor::default();
        cursor.summary = summary(2);
        cursor
    }

    fn failure() -> Failure {
        Failure::new("NO_AUDIENCE", "the rule is gone")
    }

    #[test]
    fn an_event_with_rows_is_published_and_one_without_is_processed() {
        for (sends, status) in [(0, EventStatus::Processed), (2, EventStatus::Published)] {
            let step = Step::Finished(summary(sends));
            let next = after(&step, None);
            assert_eq!((next.status, next.cursor, next.error, next.dead_letter), (status, None, None, None));
            assert_eq!(next.processed, Some((ProcessedStatus::Success, Cow::Owned(summary(sends)))));
        }
    }

    #[test]
    fn a_large_event_waits_for_its_next_step() {
        let step = Step::Continues(cursor());
        let next = after(&step, None);
        assert_eq!((next.status, next.cursor), (EventStatus::Pending, Some(&cursor())));
        assert_eq!(next.processed, Some((ProcessedStatus::Processing, Cow::Owned(summary(2)))));
    }

    #[test]
    fn a_failure_needs_an_operator_whatever_was_written_before() {
        let (failed, stopped) =
            (Step::Failed(failure()), Step::Stopped { summary: summary(2), failure: failure() });
        let (failed, stopped) = (after(&failed, None), after(&stopped, None));
        assert_eq!((failed.status, stopped.status), (EventStatus::Failed, EventStatus::Published));
        assert_eq!(failed.processed.map(|(status, _)| status), Some(ProcessedStatus::Failed));
        assert_eq!(stopped.processed, Some((ProcessedStatus::Success, Cow::Owned(summary(2)))));
        for (error, dead_letter) in [(failed.error, failed.dead_letter), (stopped.error, stopped.dead_letter)]
        {
            assert_eq!(
                (error.as_deref(), dead_letter),
                (Some("NO_AUDIENCE: the rule is gone"), Some(&failure()))
            );
        }
    }

    #[test]
    fn a_cancelled_event_keeps_the_rows_that_were_written() {
        let step = Step::Cancelled("closed today".to_owned());
        let (begun, at_start) = (cursor(), Cursor::default());
        let cases = [
            (None, EventStatus::Cancelled, Summary::default()),
            (Some(&at_start), EventStatus::Cancelled, Summary::default()),
            (Some(&begun), EventStatus::Published, summary(2)),
        ];
        for (before, status, summary) in cases {
            let next = after(&step, before);
            assert_eq!((next.status, next.error.as_deref()), (status, Some("CANCELLED: closed today")));
            assert_eq!(next.processed, Some((ProcessedStatus::Success, Cow::Owned(summary))));
            assert_eq!(next.dead_letter, None);
        }
    }

    #[test]
    fn of_a_known_event_nothing_new_is_remembered() {
        let next = after(&Step::Known, None);
        assert_eq!((next.status, next.processed, next.error), (EventStatus::Processed, None, None));
    }

    #[test]
    fn every_step_leads_where_the_statuses_allow() {
        let failed = Step::Stopped { summary: summary(1), failure: failure() };
        let steps = [
            Step::Finished(summary(0)),
            Step::Finished(summary(1)),
            Step::Failed(failure()),
            failed,
            Step::Known,
            Step::Cancelled(String::new()),
        ];
        for step in &steps {
            let next = after(step, Some(&cursor())).status;
            assert!(EventStatus::Pending.next().contains(&next), "{step:?}");
        }
    }

    #[test]
    fn an_id_is_known_once_it_was_decided() {
        let begun = cursor();
        assert!(is_known(Some(ProcessedStatus::Success), None));
        assert!(is_known(Some(ProcessedStatus::Success), Some(&begun)));
        assert!(is_known(Some(ProcessedStatus::Processing), None), "its row was inserted again");
        assert!(!is_known(Some(ProcessedStatus::Processing), Some(&begun)));
        assert!(!is_known(Some(ProcessedStatus::Failed), None));
        assert!(!is_known(None, None));
    }
}
