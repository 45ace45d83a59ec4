//! Whether a server relays for us. A server that does not relay to one recipient's domain may accept others. One that
//! refuses two domains in a row accepts nobody and counts as down.

use std::sync::{Mutex, PoisonError};

use campanile_domain::send::Outcome;

use crate::{Answer, Health};

/// The domain that was refused last, if none was accepted since.
#[derive(Debug, Default)]
pub struct Relaying(Mutex<Option<String>>);

impl Relaying {
    /// Adds to an answer about this domain what it says about the server.
    pub fn update_health(&self, answer: Answer, domain: &str) -> Answer {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answer.health != Health::Unknown {
            if matches!(answer.outcome, Outcome::Sent { .. }) {
                *refused = None;
            }
            return answer;
        }
        let before = refused.replace(domain.to_owned());
        let health =
            if before.is_some_and(|before| before != domain) { Health::RefusesAll } else { Health::Unknown };
        Answer { health, ..answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Answer {
        let outcome = Outcome::Down { after: None, error: "relay access denied".to_owned() };
        Answer { health: Health::Unknown, ..outcome.into() }
    }

    #[test]
    fn two_domains_in_a_row_say_that_it_refuses_everybody() {
        let relaying = Relaying::default();
        let refuses = |domain| relaying.update_health(refusal(), domain).health;
        assert_eq!((refuses("a.example"), refuses("a.example")), (Health::Unknown, Health::Unknown));
        assert_eq!((refuses("b.example"), refuses("c.example")), (Health::RefusesAll, Health::RefusesAll));
        relaying.update_health(Outcome::Sent { external_id: None }.into(), "d.example");
        assert_eq!((refuses("a.example"), refuses("b.example")), (Health::Unknown, Health::RefusesAll));
    }
}
