//! The broker: whether it answers.

use std::time::Duration;

use campanile_domain::finding::Finding;
use reqwest::Url;
use tokio::net::TcpStream;

use crate::config::{BrokerChoice, Config};

const SUBJECT: &str = "broker";
const PATIENCE: Duration = Duration::from_secs(5);
const REMEDY: &str = "is it running, and are host and port in broker.url right?";

pub async fn examine(config: &Config) -> Vec<Finding> {
    match config.broker.choice() {
        Ok(BrokerChoice::InProcess) => {
            vec![Finding::ok(SUBJECT, "inside the process, which serves one instance")]
        }
        Ok(BrokerChoice::RabbitMq { url, .. }) => vec![reach(&url.0).await],
        Err(error) => vec![Finding::wrong(SUBJECT, format!("{error:#}"), "correct broker.url")],
    }
}

async fn reach(url: &str) -> Finding {
    let Some((host, port)) = place(url) else {
        let what = "broker.url can't be read as a URL";
        return Finding::wrong(SUBJECT, what, "it looks like amqp://user:password@host:5672/vhost");
    };
    let name = format!("RabbitMQ, {host}:{port}");
    match tokio::time::timeout(PATIENCE, TcpStream::connect((host.trim_matches(['[', ']']), port))).await {
        Ok(Ok(_)) => Finding::ok(SUBJECT, format!("{name} answers")),
        Ok(Err(error)) => Finding::wrong(SUBJECT, format!("{name} can't be reached: {error}"), REMEDY),
        Err(_) => Finding::wrong(SUBJECT, format!("{name} does not answer within {PATIENCE:?}"), REMEDY),
    }
}

/// Never the password.
fn place(url: &str) -> Option<(String, u16)> {
    let url = Url::parse(url).ok()?;
    let port = url.port().unwrap_or(if url.scheme() == "amqps" { 5671 } else { 5672 });
    Some((url.host_str()?.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_broker_is_its_host_and_port() {
        let at = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(place("amqp://anna:secret@rabbit:5681/%2f"), at("rabbit", 5681));
        assert_eq!(
            (place("amqp://rabbit"), place("amqps://rabbit/x")),
            (at("rabbit", 5672), at("rabbit", 5671))
        );
        assert_eq!(place("amqp://[::1]/"), at("[::1]", 5672));
        assert_eq!(place("amqp://"), None);
    }
}
