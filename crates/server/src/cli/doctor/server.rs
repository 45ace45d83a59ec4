//! Checks whether an instance answers at the configured address, and what it reports about itself.

use std::time::Duration;

use campanile_domain::finding::Finding;
use campanile_store::Identity;
use serde_json::Value;

use crate::cli::client::root_cause;

const SUBJECT: &str = "server";
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The response of an instance. It is judged once the database is known.
pub struct Asked<'a> {
    url: &'a str,
    answer: Result<(u16, Value), reqwest::Error>,
}

impl<'a> Asked<'a> {
    pub async fn at(url: &'a str) -> Self {
        Asked { url, answer: ask(url).await }
    }

    pub fn finding(&self, ours: &Identity) -> Finding {
        match &self.answer {
            Ok((_, answer)) if is_of_another_database(answer, ours) => elsewhere(self.url),
            answer => finding(self.url, answer),
        }
    }
}

fn finding(url: &str, answer: &Result<(u16, Value), reqwest::Error>) -> Finding {
    match answer {
        Ok((status, answer)) => answered(url, *status, answer),
        Err(error) if root_cause(error).contains("certificate") => {
            Finding::note(SUBJECT, format!("{url} has a certificate that doctor does not trust")).with_remedy(
                "set --url to the name in the certificate; an own authority must be known to the system",
            )
        }
        Err(error) if error.is_connect() => Finding::note(SUBJECT, format!("no server is running at {url}"))
            .with_remedy("start one with `campanile serve`, or set --url"),
        Err(error) if error.is_timeout() => Finding::wrong(
            SUBJECT,
            format!("{url} did not respond within {RESPONSE_TIMEOUT:?}"),
            "check with `ss -ltnp` that Campanile listens there, and read its log; if it hangs, restart it: nothing \
             is lost. Otherwise change server.listen, or set --url to the right address",
        ),
        Err(error) => foreign(url, &error.to_string()),
    }
}

async fn ask(url: &str) -> Result<(u16, Value), reqwest::Error> {
    let http = reqwest::Client::builder().timeout(RESPONSE_TIMEOUT).build()?;
    let response = http.get(format!("{url}/readyz")).send().await?;
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

fn answered(url: &str, status: u16, answer: &Value) -> Finding {
    let Some(components) = answer["components"].as_object() else {
        return foreign(url, &format!("/readyz returned {status}"));
    };
    let unwell: Vec<String> = components
        .iter()
        .filter_map(|(name, state)| Some((name, state.as_str()?)))
        .filter(|(_, state)| *state != "ok" && !state.starts_with("capture"))
        .map(|(name, state)| format!("{name}: {state}"))
        .collect();
    let unwell = unwell.join("; ");
    match status {
        200 if unwell.is_empty() => Finding::ok(SUBJECT, format!("{url} is ready")),
        200 => Finding::note(SUBJECT, format!("{url} is ready, but {unwell}")),
        _ => Finding::wrong(
            SUBJECT,
            format!("{url} is not ready: {unwell}"),
            "it becomes ready once that is fixed",
        ),
    }
}

/// Whether the instance uses another database. Earlier releases do not report it.
fn is_of_another_database(answer: &Value, ours: &Identity) -> bool {
    let Some(theirs) = answer["database_id"].as_str() else { return false };
    match ours {
        Identity::Known(ours) => ours != theirs,
        Identity::NoTables => true,
        Identity::Unknown => false,
    }
}

fn elsewhere(url: &str) -> Finding {
    Finding::wrong(
        SUBJECT,
        format!("the server at {url} uses a different database than the one checked here"),
        "set --config, --data-dir or --database-url to its configuration, or --url or server.listen to another server",
    )
}

fn foreign(url: &str, why: &str) -> Finding {
    Finding::wrong(
        SUBJECT,
        format!("the server at {url} is not Campanile: {why}"),
        "change server.listen, or set --url to the right address",
    )
}

#[cfg(test)]
mod tests {
    use campanile_domain::finding::Level;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_of_another_database_is_told_from_ours() {
        let known = |id: &str| Identity::Known(id.to_owned());
        let theirs = json!({"database_id": "a"});
        assert!(
            !is_of_another_database(&theirs, &known("a")) && is_of_another_database(&theirs, &known("b"))
        );
        assert!(is_of_another_database(&theirs, &Identity::NoTables));
        assert!(!is_of_another_database(&theirs, &Identity::Unknown));
        assert!(!is_of_another_database(&json!({}), &known("a")));
    }

    #[test]
    fn what_an_instance_says_of_itself_is_passed_on() {
        let components = |database: &str| {
            json!({"components": {"database": database, "broker": "ok",
            "email": "capture: nothing leaves"}})
        };
        assert_eq!(answered("http://x", 200, &components("ok")).level, Level::Ok);
        let partly = answered("http://x", 200, &components("slow"));
        assert_eq!(
            (partly.level, partly.what.as_str()),
            (Level::Note, "http://x is ready, but database: slow")
        );
        let unwell = answered("http://x", 503, &components("no answer"));
        assert_eq!(
            (unwell.level, unwell.what.as_str()),
            (Level::Wrong, "http://x is not ready: database: no answer")
        );
        assert!(answered("http://x", 404, &json!("nginx")).what.contains("not Campanile"));
    }
}
