//! The state of a destination: its circuit breaker and its failures. A provider that posts to several hosts has one per
//! host, so that a dead host does not stop the others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::delivery::breaker::{Breaker, Permit};
use crate::delivery::failure_log::FailureLog;
use crate::{Answer, Health};

/// The most hosts with a state of their own. Further hosts share one until one of these works again.
const MAX_HOSTS: usize = 100;

#[derive(Debug, Default)]
pub struct Endpoint {
    pub breaker: Breaker,
    failure_log: FailureLog,
    host: Option<String>,
}

impl Endpoint {
    fn of(host: &str) -> Self {
        Endpoint { host: Some(host.to_owned()), ..Endpoint::default() }
    }

    /// Records the answer of the provider with this name.
    pub fn record(&self, permit: Permit<'_>, provider: &str, answer: &Answer) {
        match answer.health {
            Health::ByOutcome => permit.record(&answer.outcome),
            Health::Unknown => drop(permit),
            Health::RefusesAll => permit.refused(),
        }
        self.failure_log.record(&self.name(provider), answer);
    }

    /// The name for people.
    pub fn name<'a>(&self, provider: &'a str) -> Cow<'a, str> {
        match &self.host {
            Some(host) => format!("{provider} at {host}").into(),
            None => provider.into(),
        }
    }

    pub fn is_down(&self) -> bool {
        self.breaker.closes_in(Instant::now()).is_some()
    }

    /// The code of its last refusal, if it has accepted nothing since.
    pub fn refusal(&self) -> Option<Cow<'static, str>> {
        self.failure_log.refusal()
    }

    fn is_healthy(&self) -> bool {
        !self.is_down() && self.failure_log.is_healthy()
    }
}

/// The endpoints of one provider.
#[derive(Debug)]
pub struct Endpoints {
    /// For messages without a host of their own.
    pub own: Arc<Endpoint>,
    by_host: Mutex<HashMap<String, Arc<Endpoint>>>,
    others: Arc<Endpoint>,
}

impl Default for Endpoints {
    fn default() -> Self {
        Endpoints {
            own: Arc::default(),
            by_host: Mutex::default(),
            others: Arc::new(Endpoint::of("other hosts")),
        }
    }
}

impl Endpoints {
    pub fn of(&self, host: Option<&str>) -> Arc<Endpoint> {
        let Some(host) = host else { return Arc::clone(&self.own) };
        let mut endpoints = self.by_host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = endpoints.get(host) {
            return Arc::clone(endpoint);
        }
        if endpoints.len() >= MAX_HOSTS {
            endpoints.retain(|_, endpoint| !endpoint.is_healthy());
        }
        if endpoints.len() >= MAX_HOSTS {
            return Arc::clone(&self.others);
        }
        Arc::clone(endpoints.entry(host.to_owned()).or_insert_with(|| Arc::new(Endpoint::of(host))))
    }

    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        let endpoints = self.by_host.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<Endpoint>> = endpoints.values().cloned().collect();
        all.sort_by(|one, other| one.host.cmp(&other.host));
        all.insert(0, Arc::clone(&self.own));
        all.push(Arc::clone(&self.others));
        all
    }
}
