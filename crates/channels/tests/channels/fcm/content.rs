//! What a device gets: texts, priority, sound and link, and until when.

use campanile_domain::priority::Priority;
use campanile_domain::time::{Timestamp, earlier, later};

use super::*;

/// The requests for an event of a moment ago, so that the remaining lifetime is known.
async fn asked_for<'a>(messages: impl IntoIterator<Item = Message<'a>>) -> Vec<Value> {
    let google = gives_out_tokens().await;
    let messages: Vec<_> = messages.into_iter().collect();
    let server = Server::start_with(check, messages.iter().map(|_| accepted()).collect::<Vec<_>>()).await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    for message in &messages {
        fcm.send(message).await;
    }
    let asked = server.requests();
    assert!(asked.iter().all(|asked| !asked.validate_only && asked.access_token == "ya29.1"));
    assert_eq!((server.connections(), google.requests().len()), (1, 1), "connections and tokens are kept");
    asked.into_iter().map(|asked| asked.message).collect()
}

/// Removes the remaining time to live, in seconds.
fn take_ttl(message: &mut Value) -> u64 {
    let android = message["android"].as_object_mut().unwrap().remove("ttl").unwrap();
    let web = message["webpush"]["headers"].as_object_mut().unwrap().remove("TTL").unwrap();
    let seconds = web.as_str().unwrap();
    assert_eq!(android, format!("{seconds}s"));
    seconds.parse().unwrap()
}

#[tokio::test]
async fn a_device_gets_title_body_and_what_the_app_needs_to_open_it() {
    let normal = message(TOKEN, "Table \"5\"", "Pronto è\nsubito 🍝");
    let (urgent, low) =
        (Message { priority: Priority::High, ..normal }, Message { priority: Priority::Low, ..normal });
    let id = normal.key.notification_id.to_string();
    let expires = later(normal.created_at, DAY).as_second().to_string();
    let expected = |android: &str, apns: &str, web: &str| {
        json!({
            "token": TOKEN,
            "notification": {"title": "Table \"5\"", "body": "Pronto è\nsubito 🍝"},
            "data": {"event_id": "evt-1", "event_type": "ORDER_CREATED", "notification_id": id},
            "android": {"priority": android,
                        "notification": {"tag": id, "sound": "default", "channel_id": "orders"}},
            "apns": {"headers": {"apns-priority": apns, "apns-collapse-id": id, "apns-expiration": expires},
                     "payload": {"aps": {"sound": "default"}}},
            "webpush": {"headers": {"Urgency": web}, "notification": {"tag": id}},
        })
    };
    let mut asked = asked_for([normal, urgent, low]).await;
    for message in &mut asked {
        assert!((23 * 3_600..=24 * 3_600).contains(&take_ttl(message)));
    }
    assert_eq!(asked[0], expected("HIGH", "10", "normal"), "shown at once");
    assert_eq!(asked[1], expected("HIGH", "10", "high"));
    assert_eq!(asked[2], expected("NORMAL", "5", "low"), "only this may wait");
}

#[tokio::test]
async fn a_click_leads_where_the_template_says() {
    let message = message(TOKEN, "Title", "");
    let urls = ["https://example.org/orders/5?a=b&c", "HTTPS://example.org", "myapp://orders/5"];
    let asked = asked_for(urls.map(|url| Message { url: Some(url), ..message })).await;
    for (url, message) in urls.iter().zip(&asked) {
        assert_eq!(message["data"]["url"], *url, "for the app");
    }
    let links: Vec<_> = asked.iter().map(|message| &message["webpush"]["fcm_options"]["link"]).collect();
    assert_eq!(links, [&json!(urls[0]), &json!(urls[1]), &Value::Null], "browsers take https only");
}

#[tokio::test]
async fn a_retry_does_not_prolong_its_time_to_live() {
    let now = Timestamp::now();
    let old = Message { created_at: earlier(now, Duration::from_hours(20)), ..message(TOKEN, "Title", "") };
    let mut asked = asked_for([old]).await.remove(0);
    let expires = later(old.created_at, DAY).as_second().to_string();
    assert_eq!(asked["apns"]["headers"]["apns-expiration"], expires);
    assert!((3 * 3_600..=4 * 3_600).contains(&take_ttl(&mut asked)));
}

#[tokio::test]
async fn what_has_outlived_its_time_is_not_sent() {
    let google = gives_out_tokens().await;
    let server = Server::start_with(check, vec![accepted()]).await;
    let fcm = fcm(&server.address, &google.address, LONG_DEADLINE);
    let now = Timestamp::now();
    let answer = fcm.send(&Message { created_at: earlier(now, DAY), ..message(TOKEN, "Title", "") }).await;
    assert_eq!(kinds(&answer), ("expired", vec![]), "no device is to blame");
    assert_says(&answer, &["older than channels.push.ttl", "not sent"]);
    assert!(server.requests().is_empty() && google.requests().is_empty(), "nobody was asked");
}
