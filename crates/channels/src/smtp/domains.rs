//! Limits per recipient domain: a domain that would think us too eager gets no more at a time, and no more a second, than it
//! likes. What finds no room within a moment is let go and comes back later, so that it holds up nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::Pace;

const PATIENCE: Duration = Duration::from_secs(1);
/// Domains that are remembered; beyond it those that nobody writes to are forgotten.
const MAX_DOMAINS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainLimits {
    pub at_once: Option<usize>,
    pub per_second: Option<f64>,
}

#[derive(Debug)]
pub struct Domains {
    limits: DomainLimits,
    known: Mutex<HashMap<String, Arc<Domain>>>,
}

#[derive(Debug)]
struct Domain {
    turns: Option<Arc<Semaphore>>,
    pace: Option<Pace>,
}

/// Held while a message to the domain is under way.
#[derive(Debug)]
pub struct Turn {
    _turn: Option<OwnedSemaphorePermit>,
    _domain: Option<Arc<Domain>>,
}

impl Domains {
    pub fn new(limits: DomainLimits) -> Self {
        Domains { limits, known: Mutex::default() }
    }

    /// Waits for a turn, or says after how long to come back.
    pub async fn turn(&self, name: &str) -> Result<Turn, Duration> {
        if self.limits == (DomainLimits { at_once: None, per_second: None }) {
            return Ok(Turn { _turn: None, _domain: None });
        }
        let domain = self.domain(name);
        let turn = match &domain.turns {
            None => None,
            Some(turns) => match timeout(PATIENCE, Arc::clone(turns).acquire_owned()).await {
                Ok(turn) => turn.ok(),
                Err(_) => return Err(PATIENCE),
            },
        };
        if let Some(pace) = &domain.pace {
            sleep(pace.reserve(Instant::now(), PATIENCE)?).await;
        }
        Ok(Turn { _turn: turn, _domain: Some(domain) })
    }

    fn domain(&self, name: &str) -> Arc<Domain> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_DOMAINS && !known.contains_key(name) {
            let now = Instant::now();
            known.retain(|_, domain| {
                let waits = domain.pace.as_ref().is_some_and(|pace| !pace.wait(now).is_zero());
                waits || Arc::strong_count(domain) > 1
            });
        }
        let DomainLimits { at_once, per_second } = self.limits;
        let new = || Domain {
            turns: at_once.map(|turns| Arc::new(Semaphore::new(turns))),
            pace: per_second.map(Pace::per_second_of),
        };
        Arc::clone(known.entry(name.to_owned()).or_insert_with(|| Arc::new(new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_domain_has_its_own_turns() {
        let domains = Domains::new(DomainLimits { at_once: Some(1), per_second: None });
        let first = domains.turn("a.example").await.unwrap();
        assert!(domains.turn("b.example").await.is_ok());
        assert_eq!(domains.turn("a.example").await.unwrap_err(), PATIENCE);
        drop(first);
        assert!(domains.turn("a.example").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_domain_has_its_own_pace() {
        let domains = Domains::new(DomainLimits { at_once: None, per_second: Some(0.5) });
        assert!(domains.turn("a.example").await.is_ok());
        assert!(domains.turn("b.example").await.is_ok());
        assert!(domains.turn("a.example").await.unwrap_err() > PATIENCE);
        sleep(Duration::from_secs(2)).await;
        assert!(domains.turn("a.example").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn domains_that_nobody_writes_to_are_forgotten() {
        let domains = Domains::new(DomainLimits { at_once: Some(1), per_second: None });
        let kept = domains.turn("kept.example").await.unwrap();
        for number in 0..MAX_DOMAINS {
            drop(domains.turn(&format!("{number}.example")).await);
        }
        assert!(domains.known.lock().unwrap().len() <= MAX_DOMAINS);
        assert!(domains.turn("kept.example").await.is_err(), "its turn is not forgotten");
        drop(kept);
    }
}
