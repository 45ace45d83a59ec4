//! Hostile HTTP: every endpoint with mutated bodies, queries, paths and headers, and sockets that do not speak HTTP.
//!
//! Every request must be answered in time, never with a server error, and every refusal must be a problem document.
//! Afterwards the instance is alive and ready, and nothing that it accepted is stuck.

mod harvest;
mod mutate;
mod request;
mod socket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::journal::Journal;
use crate::random::Random;
use crate::world::World;
use harvest::Harvest;
use request::Request;

/// Few enough that the server never refuses a request because of its load.
const WORKERS: usize = 4;
/// The longest time for a response. Debug builds on busy machines are slow.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// This round restarts neither database nor broker, so nothing may stay unready.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// Sends hostile requests to the first instance for `length`.
pub async fn run(world: &World, length: Duration, seed: u64) -> Result<()> {
    let url = world.instances[0].url().context("the instance is up")?;
    let end = Instant::now() + length;
    let harvest = Arc::new(Harvest::default());
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let random = Random::new(seed, &format!("fuzz {worker}"));
        workers.spawn(requests(url.clone(), Arc::clone(&world.journal), Arc::clone(&harvest), random, end));
    }
    workers.spawn(socket::abuse(
        url.clone(),
        Arc::clone(&world.journal),
        Random::new(seed, "fuzz socket"),
        end,
    ));
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    await_ready(&url, &world.journal).await
}

async fn requests(
    url: String,
    journal: Arc<Journal>,
    harvest: Arc<Harvest>,
    mut random: Random,
    end: Instant,
) -> Result<()> {
    let client = reqwest::Client::builder().timeout(ANSWER_LIMIT).no_proxy().build()?;
    while Instant::now() < end {
        let request = Request::draw(&harvest, &mut random);
        let Ok(built) = request.build(&client, &url) else {
            // The client itself refuses the request, for example a header with a line feed.
            journal.count("fuzzed requests that no client can send");
            continue;
        };
        journal.count("fuzzed requests");
        match client.execute(built).await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                let body = answer.bytes().await.unwrap_or_default();
                journal.count(match status {
                    ..300 => "fuzzed requests that were accepted",
                    _ => "fuzzed requests that were refused",
                });
                if status == 200 {
                    harvest.learn(&serde_json::from_slice(&body).unwrap_or_default(), &mut random);
                }
                if let Some(fault) = fault_of_answer(status, &body) {
                    journal.find(format!("{status}, {fault}, to {request}"));
                }
            }
            // A server may close the connection after refusing a request, while the rest is still being sent.
            Err(error) if error.is_timeout() => {
                journal.find(format!("no answer within {ANSWER_LIMIT:?} to {request}"));
            }
            Err(error) if request.is_well_formed() => {
                journal.find(format!("no answer ({error:?}) to {request}"));
            }
            Err(_) => journal.count("fuzzed requests whose connection was closed"),
        }
    }
    Ok(())
}

/// What is wrong with a response, if anything.
fn fault_of_answer(status: u16, body: &[u8]) -> Option<String> {
    let shown = || String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
    match status {
        500.. => Some(shown()),
        400.. => {
            let problem: Option<Value> = serde_json::from_slice(body).ok();
            let complete = problem.is_some_and(|problem| {
                problem["type"].is_string() && problem["title"].is_string() && problem["status"] == status
            });
            // Refusals of the HTTP library, for example of an unreadable request line, have no body.
            (!complete && !body.is_empty()).then(|| format!("no problem document: {}", shown()))
        }
        _ => None,
    }
}

async fn await_ready(url: &str, journal: &Journal) -> Result<()> {
    let client = reqwest::Client::builder().timeout(ANSWER_LIMIT).no_proxy().build()?;
    for path in ["/healthz", "/readyz"] {
        let begun = Instant::now();
        loop {
            let answer = client.get(format!("{url}{path}")).send().await;
            if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                break;
            }
            if begun.elapsed() > READY_LIMIT {
                journal.find(format!("{path} after the hostile requests: {answer:?}"));
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_and_refusals_without_a_problem_document_are_faults() {
        assert_eq!(fault_of_answer(200, b"anything"), None);
        let problem = br#"{"type": "urn:campanile:invalid", "title": "t", "status": 422, "detail": "d"}"#;
        assert_eq!(fault_of_answer(422, problem), None);
        assert!(fault_of_answer(404, problem).is_some(), "the status differs");
        assert!(fault_of_answer(400, b"<html>").is_some());
        assert!(fault_of_answer(500, problem).is_some());
        assert!(fault_of_answer(503, problem).is_some());
    }
}
