//! `POST /v1/templates/preview`: renders a template for an event. The recipient exists, is given, or is an example; the
//! templates are the stored ones, or include a draft. Writes nothing.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use campanile_domain::channel::Channel;
use campanile_domain::event::{AggregateName, NewEvent};
use campanile_domain::id::{EventId, EventType, UserRef};
use campanile_domain::people::recipient::Recipient;
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::priority::Priority;
use campanile_domain::rules::row::{ChannelSelector, Row, Selector, Template};
use campanile_domain::schema::JsonObject;
use campanile_domain::template::{Renderer, is_locale};
use campanile_domain::time::{Moment, Timestamp};
use campanile_store::{RowFilter, Shown, Table, TableRow};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{self, Received};
use super::heavy::PreviewPermit;
use super::problem::FieldProblem;
use super::{App, Problem, permits};

/// What to render, and for whom.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "event": {"event_type": "ORDER_CREATED", "payload": {"items": 3}},
    "recipient": {"name": "Anna", "locale": "en"},
    "template": {"title": "{{ payload.items }} items for {{ recipient.name }}"},
}))]
struct Preview {
    /// Its id and aggregate may be left out.
    #[schema(value_type = EventToPreview)]
    event: NewEvent,
    /// The inbox if it is missing.
    #[serde(default)]
    #[schema(value_type = ChannelSelector)]
    channel: Selector<Channel>,
    /// Overrides the recipient's locale.
    #[serde(default)]
    locale: Option<String>,
    /// An example recipient. Its key may be left out.
    #[serde(default)]
    #[schema(value_type = Option<JsonObject>)]
    recipient: Option<Recipient>,
    #[serde(default)]
    user: Option<UserRef>,
    #[serde(default)]
    template: Option<Draft>,
}

/// The event of a preview.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes an event whose missing fields are filled in")]
#[serde(deny_unknown_fields)]
struct EventToPreview {
    #[schema(nullable = false)]
    event_id: Option<EventId>,
    event_type: EventType,
    #[schema(value_type = Option<AggregateName>, nullable = false)]
    aggregate_type: Option<String>,
    #[schema(value_type = Option<AggregateName>, nullable = false)]
    aggregate_id: Option<String>,
    #[schema(nullable = false)]
    payload: Option<JsonObject>,
    priority: Option<Priority>,
    occurred_at: Option<Moment>,
}

/// The rendered template, and which template that was.
#[derive(Debug, Serialize, ToSchema)]
struct Rendered {
    title: String,
    body: String,
    html: Option<String>,
    url: Option<String>,
    /// The template of title and body. Null if the event type is shown in words.
    template: Option<String>,
    html_template: Option<String>,
    /// The locale of dates and numbers.
    locale: String,
}

/// A draft of a template for this event, channel and locale.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Draft {
    #[serde(default)]
    title: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

/// Preview a template
///
/// Renders the stored templates, or a draft, for an event and a recipient. Writes nothing.
#[utoipa::path(
    post, path = "/v1/templates/preview", tag = "rules", operation_id = "preview_template", request_body = Preview,
    responses(
        (status = 200, description = "The rendered message.", body = Rendered),
        (status = 404, description = "There is no such recipient.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn preview(State(app): State<App>, headers: HeaderMap, body: Body) -> Response {
    let received = match body::read(&headers, body).await {
        Ok(received) => received,
        Err(problem) => return problem.into_response(),
    };
    let Some(permit) = app.heavy.preview() else { return permits::refuse().await };
    previewed(&app, &permit, received).await.into_response()
}

async fn previewed(app: &App, permit: &PreviewPermit, received: Received) -> Result<Json<Rendered>, Problem> {
    let parse_permit = app.heavy.permit(received.len()).await;
    let preview = parse_permit.run(|| asked(&received, app.engine.user_types()))?;
    drop((parse_permit, received));
    let recipient = recipient(app, &preview).await?;
    let render_permit = permit.work_permit().await;
    render_permit.run(|| rendered(app, preview, &recipient)).map(Json)
}

fn asked(received: &Received, user_types: &UserTypes) -> Result<Preview, Problem> {
    let given = received.one("the body must be a single object")?;
    let given = filled_in(given, user_types)?;
    let mut previews: Vec<Preview> = body::typed(&[&given], |preview| check(preview, user_types))?;
    previews.pop().ok_or_else(|| Problem::malformed("the body is empty"))
}

fn rendered(app: &App, preview: Preview, recipient: &Recipient) -> Result<Rendered, Problem> {
    let channel = match preview.channel {
        Selector::Any => None,
        Selector::Only(channel) => Some(channel),
    };
    let rules = app.engine.rules();
    let event_type = preview.event.event_type.clone();
    let draft = preview.template.map(|draft| Template {
        event_type: Selector::Only(event_type.clone()),
        channel: preview.channel,
        locale: recipient.locale.clone().filter(|l| is_locale(l)).map_or(Selector::Any, Selector::Only),
        title: draft.title,
        body: draft.body,
        html: draft.html,
        url: draft.url,
    });
    let at_fault = if draft.is_some() { "/template" } else { "" };
    let unable = |detail| wrong(at_fault, detail);
    let drafted = match draft {
        Some(draft) => Some(checked(draft, app)?),
        None => None,
    };
    let drafted = drafted.map(|draft| rules.templates.with(draft)).transpose().map_err(unable)?;
    let templates = drafted.as_ref().unwrap_or(&rules.templates);
    let document = preview.event.at(Timestamp::now()).document();
    let mut renderer = Renderer::new(templates, &event_type, &document);
    let text = renderer.render(channel, recipient).map_err(unable)?;
    let html = match channel {
        Some(channel) => renderer.html(channel, recipient, &text).map_err(unable)?,
        None => None,
    };
    let url = renderer.url(channel, recipient).map_err(unable)?;
    let chosen = renderer.chosen(channel, recipient.locale.as_deref());
    Ok(Rendered {
        title: text.title,
        body: text.body,
        html,
        url,
        template: chosen.text.map(str::to_owned),
        html_template: chosen.html.map(str::to_owned),
        locale: chosen.locale,
    })
}

/// Adds what a preview does not need: the id of an event that is not stored, and the key of an example recipient.
fn filled_in(given: &RawValue, user_types: &UserTypes) -> Result<Box<RawValue>, Problem> {
    let mut given = body::fields(given)?;
    let event = [("event_id", "preview"), ("aggregate_type", "PREVIEW"), ("aggregate_id", "preview")];
    let recipient = [("user_type", made_up_type(user_types)), ("user_id", "preview")];
    for (name, defaults) in [("event", event.as_slice()), ("recipient", recipient.as_slice())] {
        let Some(object) = given.get_mut(name).filter(|object| object.get().starts_with('{')) else {
            continue;
        };
        let mut fields = body::fields(object)?;
        for (field, value) in defaults {
            fields.entry((*field).to_owned()).or_insert_with(|| body::text(value));
        }
        *object = body::object(&fields);
    }
    Ok(body::object(&given))
}

/// The user type of an example recipient: `CUSTOMER` if configured, else any.
fn made_up_type(user_types: &UserTypes) -> &str {
    let names = || user_types.iter().map(|user_type| user_type.name.as_str());
    names().find(|name| *name == "CUSTOMER").or_else(|| names().next()).unwrap_or_default()
}

/// Checks that the given recipient could be stored.
fn check(preview: &Preview, user_types: &UserTypes) -> Result<(), FieldProblem> {
    let wrong = |pointer: &str, detail: &str| FieldProblem {
        index: 0,
        pointer: pointer.to_owned(),
        detail: detail.to_owned(),
    };
    if preview.user.is_some() && preview.recipient.is_some() {
        return Err(wrong("/user", "set either `user` or `recipient`, not both"));
    }
    if preview.locale.as_deref().is_some_and(|locale| !is_locale(locale)) {
        return Err(wrong("/locale", "is not a language tag such as `it` or `pt-BR`"));
    }
    match preview.recipient.as_ref().map(|recipient| recipient.check(user_types)) {
        Some(Err(error)) => Err(wrong(&format!("/recipient/{}", error.field), &error.detail)),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Checks a draft like a row, so that errors name the field.
fn checked(draft: Template, app: &App) -> Result<Template, Problem> {
    draft
        .check(app.engine.user_types())
        .map_err(|error| wrong(&format!("/template/{}", error.field), error.detail))?;
    Ok(draft)
}

fn wrong(pointer: &str, detail: String) -> Problem {
    Problem::invalid(vec![FieldProblem { index: 0, pointer: pointer.to_owned(), detail }])
}

async fn recipient(app: &App, preview: &Preview) -> Result<Recipient, Problem> {
    let mut recipient = match (&preview.user, &preview.recipient) {
        (Some(user), _) => stored(app, user).await?,
        (None, Some(recipient)) => recipient.clone(),
        (None, None) => nobody(app.engine.user_types())?,
    };
    if let Some(locale) = &preview.locale {
        recipient.locale = Some(locale.clone());
    }
    Ok(recipient)
}

/// An example recipient, for templates that mention none.
fn nobody(user_types: &UserTypes) -> Result<Recipient, Problem> {
    serde_json::from_value(json!({ "user_type": made_up_type(user_types), "user_id": "preview" }))
        .map_err(|error| Problem::unusable_data(&format!("cannot read the example recipient: {error}")))
}

async fn stored(app: &App, user: &UserRef) -> Result<Recipient, Problem> {
    let columns = vec![
        ("user_type", user.user_type.as_str().to_owned()),
        ("user_id", user.user_id.as_str().to_owned()),
    ];
    let filter = RowFilter { columns, after: None, limit: 1 };
    match app.engine.list_rows(Table::Recipients, filter).await?.items.pop() {
        Some(Shown::Typed(TableRow::Recipient(recipient))) => Ok(recipient),
        Some(row) => serde_json::from_value(json!(row))
            .map_err(|error| Problem::unusable_data(&format!("cannot read the recipient: {error}"))),
        None => Err(Problem::not_found(format!("recipient {} {} not found", user.user_type, user.user_id))),
    }
}
