//! A change of the rules applies to the next event, without a restart; reverting it restores the previous behaviour.

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::fresh::Fresh;
use crate::support::{Backend, reservation, staff};

/// Emits one event after another and returns what becomes of each.
struct Events<'a> {
    server: &'a Fresh,
    count: u32,
}

impl Events<'_> {
    async fn next(&mut self) -> Value {
        self.count += 1;
        let id = format!("evt-{}", self.count);
        self.server.emit(&reservation(&id)).await;
        self.server.settled(&id).await
    }

    /// The verdict on each person's channel.
    async fn verdicts(&mut self, channel: &str) -> Vec<Value> {
        let trace = self.next().await;
        trace["decisions"].as_array().unwrap().iter().map(|d| d["channels"][channel].clone()).collect()
    }

    async fn title(&mut self) -> String {
        self.next().await["notifications"][0]["title"].as_str().unwrap().to_owned()
    }
}

async fn delete(server: &Fresh, path: &str) {
    assert_eq!(server.delete(path).await.status, 204, "{path}");
}

async fn preferences_and_settings_count_for_the_next_event(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let mut events = Events { server: &server, count: 0 };
    assert_eq!(events.verdicts("PUSH").await, ["SEND", "SEND", "SEND"]);

    let off = json!([{"user_type": "RESTAURANT_USER", "user_id": 2, "channel": "PUSH", "enabled": false}]);
    server.put("/v1/preferences", off).await;
    assert_eq!(events.verdicts("PUSH").await, ["SEND", "USER_OFF", "SEND"]);
    // The preference for this event type applies as a whole.
    let on = json!([{
        "user_type": "RESTAURANT_USER", "user_id": 2, "channel": "PUSH", "event_type": "RESERVATION_REQUESTED",
    }]);
    server.put("/v1/preferences", on).await;
    assert_eq!(events.verdicts("PUSH").await, ["SEND", "SEND", "SEND"]);
    let key = "/v1/preferences?user_type=RESTAURANT_USER&user_id=2&channel=PUSH";
    delete(&server, &format!("{key}&event_type=RESERVATION_REQUESTED")).await;
    assert_eq!(events.verdicts("PUSH").await, ["SEND", "USER_OFF", "SEND"]);
    delete(&server, key).await;
    assert_eq!(events.verdicts("PUSH").await, ["SEND", "SEND", "SEND"]);

    // For the type, for the kind, for the entity: the most specific one counts.
    let setting = |scope: &str, value: &str, fields: Value| {
        let mut row = fields;
        row["entity_type"] = json!("RESTAURANT");
        row["channel"] = json!("EMAIL");
        if !scope.is_empty() {
            row[scope] = json!(value);
        }
        json!([row])
    };
    server.put("/v1/settings", setting("", "", json!({"enabled": false}))).await;
    assert_eq!(events.verdicts("EMAIL").await, ["GROUP_OFF", "GROUP_OFF", "GROUP_OFF"]);
    server.put("/v1/entities", json!([{"entity_type": "RESTAURANT", "entity_id": 5, "kind": "BAR"}])).await;
    server.put("/v1/settings", setting("kind", "BAR", json!({"max_recipients": 1}))).await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "MAX_RECIPIENTS", "MAX_RECIPIENTS"]);
    server.put("/v1/settings", setting("entity_id", "5", json!({"roles": ["CHEF"]}))).await;
    assert_eq!(events.verdicts("EMAIL").await, ["ROLE", "ROLE", "SEND"]);
    delete(&server, "/v1/settings?entity_type=RESTAURANT&entity_id=5&channel=EMAIL").await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "MAX_RECIPIENTS", "MAX_RECIPIENTS"]);
    delete(&server, "/v1/settings?entity_type=RESTAURANT&kind=BAR&channel=EMAIL").await;
    assert_eq!(events.verdicts("EMAIL").await, ["GROUP_OFF", "GROUP_OFF", "GROUP_OFF"]);
    delete(&server, "/v1/settings?entity_type=RESTAURANT&channel=EMAIL").await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "SEND", "SEND"]);
}

async fn routing_and_audiences_count_for_the_next_event(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    server
        .put("/v1/recipients", json!([{"user_type": "ADMIN_USER", "user_id": 1, "email": "a@example.com"}]))
        .await;
    let mut events = Events { server: &server, count: 0 };
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "SEND", "SEND"]);

    server
        .put(
            "/v1/routing",
            json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SMS", "priority": "HIGH"}]),
        )
        .await;
    let trace = events.next().await;
    let channels = &trace["decisions"][0]["channels"];
    assert_eq!(
        (&channels["SMS"], &channels["EMAIL"], &channels["WEBSOCKET"]),
        (&json!("SEND"), &json!("NOT_ROUTED"), &json!("NOT_ROUTED"))
    );
    assert_eq!(trace["outbox"][0]["priority"], "HIGH");
    delete(&server, "/v1/routing?event_type=RESERVATION_REQUESTED&channel=SMS").await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "SEND", "SEND"]);

    // No channel is left: there is no notification, and the decision says why.
    server.put("/v1/routing", json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SLACK"}])).await;
    let trace = events.next().await;
    assert_eq!((&trace["event"]["status"], &trace["notifications"]), (&json!("PROCESSED"), &json!([])));
    assert_eq!(trace["decisions"][0]["channels"]["SLACK"], "NO_ADDRESS");
    delete(&server, "/v1/routing?event_type=RESERVATION_REQUESTED&channel=SLACK").await;

    let admins =
        json!([{"event_type": "RESERVATION_REQUESTED", "name": "admins", "recipient_type": "ADMIN_USER"}]);
    server.put("/v1/audiences", admins).await;
    assert_eq!(events.next().await["decisions"][0]["user_type"], "ADMIN_USER");
    // An audience whose condition does not hold is ignored, so the aggregate type decides again.
    let never = json!([{
        "event_type": "RESERVATION_REQUESTED", "name": "admins", "recipient_type": "ADMIN_USER",
        "when": "payload.party > 10",
    }]);
    server.put("/v1/audiences", never).await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "SEND", "SEND"]);
    delete(&server, "/v1/audiences?event_type=RESERVATION_REQUESTED&name=admins").await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "SEND", "SEND"]);
}

async fn a_team_audience_overrules_the_users_switch(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let off = json!([{"user_type": "RESTAURANT_USER", "user_id": 1, "channel": "EMAIL", "enabled": false}]);
    server.put("/v1/preferences", off).await;
    let mut events = Events { server: &server, count: 0 };
    assert_eq!(events.verdicts("EMAIL").await, ["USER_OFF", "SEND", "SEND"]);
    let team = json!([{
        "event_type": "RESERVATION_REQUESTED", "name": "team", "recipient_type": "RESTAURANT_USER",
        "entity_path": "/aggregate_id", "roles": ["MANAGER", "CHEF"], "scope": "TEAM",
    }]);
    server.put("/v1/audiences", team).await;
    assert_eq!(events.verdicts("EMAIL").await, ["SEND", "SEND"]);
}

async fn templates_and_people_count_for_the_next_event(backend: Backend) {
    let server = Fresh::start(backend);
    let mut chef = staff()[2].clone();
    chef["locale"] = json!("it-CH");
    server.put("/v1/recipients", json!([chef])).await;
    let mut events = Events { server: &server, count: 0 };
    assert_eq!(events.title().await, "Reservation requested");

    server.put("/v1/templates", json!([{"title": "News: {{ event_type }}"}])).await;
    assert_eq!(events.title().await, "News: RESERVATION_REQUESTED");
    server
        .put(
            "/v1/templates",
            json!([{"event_type": "RESERVATION_REQUESTED", "title": "A table for {{ payload.guest }}"}]),
        )
        .await;
    assert_eq!(events.title().await, "A table for John Doe");
    let italian = json!([{
        "event_type": "RESERVATION_REQUESTED", "locale": "it", "title": "Un tavolo per {{ payload.guest }}",
        "body": "{{ recipient.name }}: {{ payload.party }} persone",
    }]);
    server.put("/v1/templates", italian).await;
    let trace = events.next().await;
    assert_eq!(trace["notifications"][0]["title"], "Un tavolo per John Doe");
    assert_eq!(trace["notifications"][0]["body"], "Person 3: 4 persone");
    delete(&server, "/v1/templates?event_type=RESERVATION_REQUESTED&locale=it").await;
    assert_eq!(events.title().await, "A table for John Doe");
    delete(&server, "/v1/templates?event_type=RESERVATION_REQUESTED").await;
    delete(&server, "/v1/templates").await;
    assert_eq!(events.title().await, "Reservation requested");

    // A template that fails at run time fails its rows, visibly, and nothing else.
    server
        .put("/v1/templates", json!([{"channel": "EMAIL", "title": "{{ payload.nobody_gave_this }}"}]))
        .await;
    let trace = events.next().await;
    let email = trace["outbox"].as_array().unwrap().iter().find(|row| row["channel"] == "EMAIL").unwrap();
    assert_eq!(email["status"], "FAILED");
    let error = email["last_error"].as_str().unwrap();
    assert!(error.starts_with("TEMPLATE_ERROR: ") && error.contains("nobody_gave_this"), "{error}");
    assert_eq!(
        (&trace["event"]["status"], trace["sends"].as_array().unwrap().len()),
        (&json!("PROCESSED"), 3)
    );
    delete(&server, "/v1/templates?channel=EMAIL").await;

    chef["active"] = json!(false);
    server.put("/v1/recipients", json!([chef])).await;
    let trace = events.next().await;
    assert!(trace["event"]["last_error"].as_str().unwrap().starts_with("NO_RECIPIENTS"));
    server.put("/v1/recipients", staff()).await;
    assert_eq!(events.verdicts("EMAIL").await.len(), 3);
    delete(&server, "/v1/recipients?user_type=RESTAURANT_USER&user_id=3").await;
    assert_eq!(events.verdicts("EMAIL").await.len(), 2);
}

on_both! {
    preferences_and_settings_count_for_the_next_event;
    routing_and_audiences_count_for_the_next_event;
    a_team_audience_overrules_the_users_switch;
    templates_and_people_count_for_the_next_event;
}
