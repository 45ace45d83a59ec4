//! `GET /v1/events/{id}`: the trace of an event, in pages of users.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use campanile_domain::id::{EventId, UserId, UserRef, UserTypeName};
use campanile_domain::rules::decision::Decision;
use campanile_store::{
    DeadLetterRow, NotificationRow, OutboxView, ProcessedRow, RecipientName, Shown, Trace, TraceFilter,
    TracedEvent, TracedSend,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::access::Caller;
use super::events::user;
use super::params::{Params, PathId};
use super::redaction::Redaction;
use super::send_rows::{self, ShownSend};
use super::{App, Problem};

/// Users of one page. With five channels this is at most 1,000 rows.
const MAX_USERS: usize = 200;

/// Which part of a trace to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TraceParams {
    /// Only this user; together with `user_id`.
    #[param(value_type = Option<UserTypeName>)]
    user_type: Option<UserTypeName>,
    #[param(value_type = Option<UserId>)]
    user_id: Option<UserId>,
    cursor: Option<String>,
}

/// What happened to an event: who was to be told, what was decided and why, and each send with its attempts.
#[derive(Debug, Serialize, ToSchema)]
pub struct TraceBody {
    event: TracedEvent,
    /// The result of the decision; null until the event is decided.
    processed: Option<ProcessedRow>,
    decisions: Vec<NamedDecision>,
    outbox: Vec<OutboxView>,
    notifications: Vec<NotificationRow>,
    sends: Vec<ShownSend<TracedSend>>,
    dead_letters: Vec<DeadLetterRow>,
    /// The cursor of the next page of users. Null at the end.
    next: Option<String>,
}

/// The decision about a user, with the name and role of now.
#[derive(Debug, Serialize, ToSchema)]
pub struct NamedDecision {
    #[serde(flatten)]
    #[schema(value_type = Decision)]
    decision: Shown<Decision>,
    name: Option<String>,
    role: Option<String>,
}

/// Read the trace of an event
///
/// Arrays have the rows of at most 200 users. Without the scope `payload`, payloads, addresses and texts are hidden.
#[utoipa::path(
    get, path = "/v1/events/{id}", tag = "events", operation_id = "read_trace",
    params(("id" = String, Path, description = "The event's id.", example = "order-1001"), TraceParams),
    responses(
        (status = 200, description = "The trace.", body = TraceBody),
        (status = 404, description = "There is no such event.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn trace(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId,
    Params(given): Params<TraceParams>,
) -> Result<Json<TraceBody>, Problem> {
    let user = user(given.user_type, given.user_id)?;
    let after = given.cursor.map(|cursor| parse_cursor(&cursor)).transpose()?;
    let no_such =
        || Problem::not_found(format!("event `{}` not found", id.chars().take(200).collect::<String>()));
    // Producers with SQL may have written an id that HTTP refuses; it can still be looked up.
    if id.contains('\0') {
        return Err(no_such());
    }
    let event_id = EventId::stored(id.clone());
    let filter = TraceFilter { user: user.clone(), after, limit: MAX_USERS };
    let trace = app.engine.trace(&event_id, filter).await?.ok_or_else(no_such)?;
    let recorded = trace.decisions.is_some() || trace.processed.is_none();
    // Of a large audience it is decided again. An unreadable event was not decided.
    let decided_again = match (&user, &trace.event.event) {
        (Some(user), Some(event)) if !recorded => app.engine.explain_user(event, user).await?,
        _ => None,
    };
    Ok(Json(body_of(&app, Redaction::of(&caller), trace, user.as_ref(), decided_again)))
}

fn body_of(
    app: &App,
    redaction: Redaction,
    trace: Trace,
    user: Option<&UserRef>,
    decided_again: Option<Decision>,
) -> TraceBody {
    let Trace {
        mut event,
        processed,
        decisions,
        recipients,
        mut outbox,
        mut notifications,
        mut sends,
        mut dead_letters,
        next,
    } = trace;
    let mut decisions = named(decisions.unwrap_or_default(), user, &recipients);
    decisions.extend(decided_again.map(NamedDecision::of));
    redaction.event(&mut event);
    for decision in &mut decisions {
        decision.hide(redaction);
    }
    for row in &mut outbox {
        redaction.outbox_row(row);
    }
    for row in &mut notifications {
        redaction.notification(row);
    }
    for send in &mut sends {
        redaction.traced_send(send);
    }
    for row in &mut dead_letters {
        redaction.dead_letter(row);
    }
    TraceBody {
        event,
        processed,
        decisions,
        outbox,
        notifications,
        sends: send_rows::shown(app.engine.providers(), sends, |send| &send.row),
        dead_letters,
        next: next.map(|user| format!("{} {}", user.user_type, user.user_id)),
    }
}

impl NamedDecision {
    pub fn of(decision: Decision) -> Self {
        let (name, role) = (decision.name.clone(), decision.role.clone());
        NamedDecision { decision: Shown::Typed(decision), name, role }
    }

    pub fn hide(&mut self, redaction: Redaction) {
        match &mut self.decision {
            Shown::Typed(decision) => {
                decision.details.values_mut().for_each(|details| redaction.details(details));
            }
            Shown::Raw(stored) => redaction.details(stored),
        }
    }
}

/// Decisions about everybody, or about one user, with the names and roles of now.
fn named(
    decisions: Vec<Shown<Decision>>,
    of_user: Option<&UserRef>,
    people: &[RecipientName],
) -> Vec<NamedDecision> {
    let by_user: HashMap<&UserRef, &RecipientName> =
        people.iter().map(|person| (&person.user, person)).collect();
    let shown = |decision: Shown<Decision>| {
        let user = decided_user(&decision);
        if of_user.is_some() && of_user != user.as_ref() {
            return None;
        }
        // Only an object can be shown beside other fields.
        let decision = match decision {
            Shown::Raw(stored) if !stored.is_object() => Shown::Raw(json!({ "unreadable": stored })),
            decision => decision,
        };
        let person = user.and_then(|user| by_user.get(&user).copied());
        let (name, role) =
            person.map(|person| (person.name.clone(), person.role.clone())).unwrap_or_default();
        Some(NamedDecision { decision, name, role })
    };
    decisions.into_iter().filter_map(shown).collect()
}

fn decided_user(decision: &Shown<Decision>) -> Option<UserRef> {
    match decision {
        Shown::Typed(Decision { user_type, user_id, .. }) => {
            Some(UserRef { user_type: user_type.clone(), user_id: user_id.clone() })
        }
        Shown::Raw(stored) => UserRef::deserialize(stored).ok(),
    }
}

fn parse_cursor(cursor: &str) -> Result<UserRef, Problem> {
    let user = cursor.split_once(' ').and_then(|(user_type, user_id)| {
        let (user_type, user_id) = (UserTypeName::new(user_type).ok()?, UserId::new(user_id).ok()?);
        Some(UserRef { user_type, user_id })
    });
    user.ok_or_else(|| {
        Problem::bad_query("cursor: not a cursor of this list; use `next` of its previous page")
    })
}
