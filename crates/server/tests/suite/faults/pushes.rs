//! The results of devices are kept: an instance that dies during a later attempt makes only that attempt's devices
//! doubtful.

use std::collections::BTreeMap;

use campanile_testkit::on_both;
use campanile_testkit::provider::fcm::FcmRequest;
use campanile_testkit::provider::google::{Google, error, told};
use campanile_testkit::provider::http::Reply;
use serde_json::{Value, json};

use crate::support::{Backend, Home, Server, reservation, staff};

/// A busy device is reached at the third request.
fn by_token() -> impl FnMut(&FcmRequest) -> Reply {
    let mut times = 0;
    move |asked| {
        times += usize::from(asked.token() == "busy");
        if asked.token() == "busy" && times < 3 {
            return error(503, "UNAVAILABLE", "UNAVAILABLE");
        }
        told(asked)
    }
}

async fn killed_while_one_device_is_asked_again(backend: Backend) {
    for (on_doubt, status, times) in [("resend", "SENT", 3), ("hold", "IN_DOUBT", 2)] {
        let asked = |times| BTreeMap::from([("alive".to_owned(), 1), ("busy".to_owned(), times)]);
        let google = Google::start(by_token()).await;
        let home = Home::new(backend);
        let given = google.variables();
        let mut variables: Vec<_> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
        variables.push(("CAMPANILE_SEND__PUSH__ON_DOUBT", on_doubt));
        variables.push(("CAMPANILE_CHANNELS__PUSH__DEADLINE", "2s"));
        let again = [variables.as_slice(), &[("CAMPANILE_KILL_AT", "send.after_provider:2")]].concat();
        let mut server = Server::start_with(&home, &again);
        let mut anna = staff()[0].clone();
        anna.as_object_mut().unwrap().retain(|field, _| field != "phone" && field != "email");
        anna["push_tokens"] = json!(["alive", "busy"]);
        server.put("/v1/recipients", json!([anna])).await;
        server.emit(&reservation("evt-1")).await;
        server.died_by_sigkill().await;
        assert_eq!(google.asked(), asked(2));

        let server = Server::start_with(&home, &variables);
        let trace = server.settled("evt-1").await;
        let send: &Value =
            trace["sends"].as_array().unwrap().iter().find(|send| send["channel"] == "PUSH").unwrap();
        assert_eq!(send["status"], status, "{trace}");
        assert_eq!(google.asked(), asked(times), "{trace}");
        let lives = if on_doubt == "resend" { 2 } else { 1 };
        assert_eq!(google.tokens.requests().len(), lives, "an access token for each life that had to push");
    }
}

on_both! {
    killed_while_one_device_is_asked_again;
}
