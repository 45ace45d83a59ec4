//! The meaning of an SMTP reply for a message.
//!
//! | reply | outcome |
//! |---|---|
//! | 2xx to the content | sent |
//! | 421, 454, and any 4xx about the server itself (4.3.x) | down: it accepts no messages at present |
//! | another 4xx to RCPT, DATA or the content | deferred: greylisting, a full mailbox |
//! | another 4xx to MAIL | retry |
//! | 530, 534, 535, 538 | down: it requires a login, or another kind of login |
//! | 5xx to MAIL, unless the message is too large (552, 5.3.4) | down: it refuses our sender for every recipient |
//! | 5xx to RCPT whose words are about relaying | down for this recipient; for all, when it refuses a second domain |
//! | 5xx about the mailbox itself (5.1.1, 5.1.2, 5.1.3, 5.1.6, 5.1.10) | rejected, and the address is dead |
//! | 550 to RCPT without an enhanced code, in words that mean "no such user" | rejected, and the address is dead |
//! | another 5xx | rejected |
//! | anything else before the content is written | down: this is not SMTP |
//! | anything else, or nothing, after the content is written | unanswered: it may have been accepted |

use campanile_domain::send::{AddressOutcome, AddressResult, Outcome};

use crate::email::connection::{Delivery, Step};
use crate::email::reply::Reply;
use crate::{Answer, Cause, Health};

const AUTH_REQUIRED_CODES: [u16; 4] = [530, 534, 535, 538];
/// The codes `5.1.x` for: no such mailbox, no such domain, not an address, moved away, accepts no mail.
const UNKNOWN_MAILBOX_CODES: [(u16, u16); 5] = [(1, 1), (1, 2), (1, 3), (1, 6), (1, 10)];
/// Phrases with which a 550 without an enhanced code means that the mailbox does not exist. "Mailbox unavailable" is
/// not one: RFC 5321 uses it for every 550, policy included.
const UNKNOWN_MAILBOX_PHRASES: [&str; 17] = [
    "account does not exist",
    "address does not exist",
    "address unknown",
    "invalid mailbox",
    "invalid recipient",
    "mailbox does not exist",
    "mailbox not found",
    "no mailbox here by that name",
    "no such mailbox",
    "no such recipient",
    "no such user",
    "recipient not found",
    "recipient unknown",
    "unknown recipient",
    "unknown user",
    "user does not exist",
    "user unknown",
];
/// Phrases of servers that do not relay for the client.
const RELAY_PHRASES: [&str; 9] = [
    "not a relay",
    "not permitted to relay",
    "not relay",
    "relay access denied",
    "relay denied",
    "relay not permitted",
    "relaying denied",
    "relaying not allowed",
    "unable to relay",
];
/// The code for a message whose announced SIZE is too large.
const MESSAGE_TOO_LARGE: (u16, u16) = (3, 4);
/// The limit for the queue id, or for other text of the server.
const MAX_EXTERNAL_ID_CHARS: usize = 120;

pub fn answer(delivery: Delivery, address: &str) -> Answer {
    match delivery {
        Delivery::Accepted(reply) => Outcome::Sent { external_id: external_id(&reply) }.into(),
        Delivery::Broken { at: Step::EndOfData, why } => {
            let error = format!("the mail server {why}, after it had received the whole message");
            Answer::from(Outcome::Unanswered { error }).with_cause(Cause::new("no answer"))
        }
        Delivery::Broken { why, .. } => {
            let outcome = Outcome::Down { after: None, error: format!("the mail server {why}") };
            Answer::from(outcome).with_cause(Cause::new("connection lost"))
        }
        Delivery::Refused { at, reply, .. } => refused(at, &reply, address),
    }
}

fn refused(at: Step, reply: &Reply, address: &str) -> Answer {
    let subject = match at {
        Step::From => "the sender",
        Step::To => "the recipient",
        Step::Data | Step::EndOfData => "the message",
    };
    let error = format!("the mail server rejected {subject}: {}", reply.redacted_text());
    let cause = Cause::new(reply.codes());
    let outcome = match (reply.code, reply.enhanced) {
        (421 | 454, _) | (400..=499, Some((3, _))) => Outcome::Down { after: None, error },
        (400..=499, _) if at == Step::From => Outcome::Retry { after: None, error },
        (400..=499, _) => Outcome::Deferred { error },
        (code, _) if AUTH_REQUIRED_CODES.contains(&code) => return refuses_us(error, reply),
        (552, _) if at == Step::From => Outcome::Rejected { error },
        (500..=599, detail) if at == Step::From && detail != Some(MESSAGE_TOO_LARGE) => {
            return refuses_us(error, reply);
        }
        // The server may relay to other domains. What this says about the server is clear only when it refuses a second
        // domain.
        (500..=599, _) if at == Step::To && contains_phrase(reply, &RELAY_PHRASES) => {
            let outcome = Outcome::Down { after: None, error };
            return Answer { health: Health::Unknown, ..outcome.into() }.with_cause(cause);
        }
        (500..=599, _) if at == Step::To && is_unknown_mailbox(reply) => {
            let end = AddressOutcome::Dead { reason: reply.redacted_text() };
            let done = vec![AddressResult { address: address.to_owned(), end }];
            return Answer { done, ..Outcome::Rejected { error }.into() };
        }
        (500..=599, _) => Outcome::Rejected { error },
        _ if at == Step::EndOfData => Outcome::Unanswered { error },
        _ => Outcome::Down { after: None, error },
    };
    Answer::from(outcome).with_cause(cause)
}

/// The server refuses our credentials or our sender.
fn refuses_us(error: String, reply: &Reply) -> Answer {
    Answer::from(Outcome::Down { after: None, error }).with_cause(Cause::refusal(reply.codes()))
}

fn is_unknown_mailbox(reply: &Reply) -> bool {
    match reply.enhanced {
        // 5.0.x is no more specific than 550.
        None | Some((0, _)) => reply.code == 550 && contains_phrase(reply, &UNKNOWN_MAILBOX_PHRASES),
        Some(detail) => UNKNOWN_MAILBOX_CODES.contains(&detail),
    }
}

/// Whether the reply contains a phrase. Addresses are ignored, because servers put them anywhere: `User
/// <anna@example.com> unknown` is "user unknown".
fn contains_phrase(reply: &Reply, phrases: &[&str]) -> bool {
    let words = reply.redacted_text().to_lowercase();
    let words: Vec<&str> = words.split_whitespace().filter(|word| *word != "(address)").collect();
    let words = words.join(" ");
    phrases.iter().any(|phrase| words.contains(phrase))
}

/// The queue id: `2.0.0 Ok: queued as 4X1` → `4X1`. For other servers, their text without the code.
fn external_id(reply: &Reply) -> Option<String> {
    let text = reply.lines.first()?;
    let said = match text.split_once("queued as ") {
        Some((_, id)) => id.split_whitespace().next().unwrap_or_default(),
        None => text,
    };
    let said: String = said.chars().filter(|c| !c.is_control()).take(MAX_EXTERNAL_ID_CHARS).collect();
    let said = said.trim();
    (!said.is_empty()).then(|| said.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        Reply::take(&mut format!("{text}\r\n").into_bytes()).unwrap().unwrap()
    }

    fn kind(answer: &Answer) -> &'static str {
        match (&answer.outcome, answer.done.is_empty()) {
            (Outcome::Sent { .. }, true) => "sent",
            (Outcome::Retry { .. }, true) => "retry",
            (Outcome::Down { .. }, true) => "down",
            (Outcome::Rejected { .. }, true) => "rejected",
            (Outcome::Rejected { .. }, false) => "dead",
            (Outcome::Deferred { .. }, true) => "deferred",
            (Outcome::Unanswered { .. }, true) => "unanswered",
            _ => "odd",
        }
    }

    #[test]
    fn every_reply_has_its_meaning() {
        let cases = [
            (Step::From, "421 4.3.2 shutting down", "down"),
            (Step::From, "452 4.3.1 disk full", "down"),
            (Step::From, "451 greylisted", "retry"),
            (Step::From, "530 5.7.0 authenticate first", "down"),
            (Step::From, "550 5.7.1 not your address", "down"),
            (Step::From, "553 5.7.1 sender address rejected: not owned by user", "down"),
            (Step::From, "552 message too large", "rejected"),
            (Step::From, "554 5.3.4 too large", "rejected"),
            (Step::From, "552 5.3.4 too large", "rejected"),
            (Step::To, "450 4.2.0 greylisted", "deferred"),
            (Step::To, "452 4.2.2 mailbox full", "deferred"),
            (Step::To, "451 4.7.1 greylisted, try again in 300 seconds", "deferred"),
            (Step::To, "451 4.3.0 no disk", "down"),
            (Step::To, "454 4.7.0 TLS not available", "down"),
            (Step::Data, "451 4.7.1 greylisted", "deferred"),
            (Step::To, "421 4.7.0 too many connections", "down"),
            (Step::To, "550 5.1.1 <anna@example.com> unknown", "dead"),
            (Step::To, "550 5.1.10 null MX", "dead"),
            (Step::To, "550 blocked", "rejected"),
            (Step::To, "550 mailbox unavailable", "rejected"),
            (Step::To, "550 No such user here", "dead"),
            (Step::To, "550 User <anna@example.com> unknown", "dead"),
            (Step::To, "550 5.0.0 user unknown", "dead"),
            (Step::To, "550 5.7.1 user unknown to our policy", "rejected"),
            (Step::To, "553 no such user", "rejected"),
            (Step::To, "554 5.7.1 <anna@example.com>: Relay access denied", "down"),
            (Step::To, "550 5.7.1 Unable to relay", "down"),
            (Step::To, "550-5.7.54 SMTP; Unable to relay recipient\r\n550 in non-accepted domain", "down"),
            (Step::To, "554 5.7.1 rejected by policy of relay3.example.net", "rejected"),
            (Step::To, "354 go on", "down"),
            (Step::Data, "451 4.3.0 try later", "down"),
            (Step::Data, "554 no valid recipients", "rejected"),
            (Step::EndOfData, "451 4.7.1 later", "deferred"),
            (Step::EndOfData, "554 5.7.1 spam", "rejected"),
            (Step::EndOfData, "550 5.1.1 no", "rejected"),
            (Step::EndOfData, "354 what?", "unanswered"),
        ];
        for (at, text, expected) in cases {
            let answer =
                answer(Delivery::Refused { at, reply: reply(text), ends: false }, "anna@example.com");
            assert_eq!(kind(&answer), expected, "{at:?} {text}");
            assert!(!answer.outcome.error().unwrap().contains("anna@"), "{answer:?}");
        }
    }

    #[test]
    fn silence_is_a_doubt_only_when_the_email_is_out() {
        for at in [Step::From, Step::To, Step::Data] {
            assert_eq!(kind(&answer(Delivery::Broken { at, why: "hung up".to_owned() }, "")), "down");
        }
        let late = Delivery::Broken { at: Step::EndOfData, why: "hung up".to_owned() };
        assert_eq!(kind(&answer(late, "")), "unanswered");
    }

    #[test]
    fn the_servers_own_id_is_kept() {
        let id = |text: &str| external_id(&reply(text));
        assert_eq!(id("250 2.0.0 Ok: queued as 4bXJQ5").as_deref(), Some("4bXJQ5"));
        assert_eq!(id("250 Ok 0102018c-x").as_deref(), Some("Ok 0102018c-x"));
        assert_eq!(id("250"), None);
    }
}
