//! The providers of a channel, in the order in which they are asked. A provider that is down is skipped until it works
//! again. A message that it refused goes to the next one in the same attempt: nothing was accepted, so there is no
//! duplicate.

use std::sync::Arc;
use std::time::Duration;

use campanile_domain::send::Outcome;
use tokio::time::{Instant, sleep, timeout};

use crate::delivery::endpoint::{Endpoint, Endpoints};
use crate::{Answer, Cause, Message, Provider, RateLimit, SendLease};

/// A provider keeps its deadline itself, because it knows best what an unfinished attempt means. The chain enforces it
/// after this additional time.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Chain {
    links: Vec<Link>,
}

/// One provider of a channel.
#[derive(Debug)]
pub struct Link {
    name: String,
    pub provider: Arc<dyn Provider>,
    endpoints: Endpoints,
    rate_limit: Option<RateLimit>,
}

impl Link {
    pub fn new(provider: Arc<dyn Provider>, rate_limit: Option<RateLimit>) -> Self {
        Link { name: provider.name().to_owned(), provider, endpoints: Endpoints::default(), rate_limit }
    }

    /// The name in `notification_channel_send.provider`. The second provider of a channel is, for example, `smtp-2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the provider is skipped at present.
    pub fn is_down(&self) -> bool {
        self.closes_in(Instant::now()).is_some()
    }

    /// What is skipped at present: the provider, or some of its hosts.
    pub fn down(&self) -> Vec<String> {
        self.endpoints
            .all()
            .iter()
            .filter(|endpoint| endpoint.is_down())
            .map(|endpoint| self.name_of(endpoint))
            .collect()
    }

    /// Who refuses our credentials or sender, and with which code, until it accepts a message.
    pub fn refusals(&self) -> Vec<String> {
        let refusal =
            |endpoint: &Arc<Endpoint>| Some(format!("{} ({})", self.name_of(endpoint), endpoint.refusal()?));
        self.endpoints.all().iter().filter_map(refusal).collect()
    }

    fn name_of(&self, endpoint: &Endpoint) -> String {
        endpoint.name(&self.name).into_owned()
    }

    fn closes_in(&self, now: Instant) -> Option<Duration> {
        self.endpoints.own.breaker.closes_in(now)
    }
}

/// The result of an attempt.
#[derive(Debug)]
pub struct ProviderAnswer<'a> {
    pub answer: Answer,
    /// The provider that was asked last, or would have been asked.
    pub provider: &'a str,
}

/// Whether claiming sends makes sense now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Available,
    /// All providers are down, and one message may probe.
    ProbeOnly,
    /// All providers are down for at least this long.
    Unavailable(Duration),
}

impl Chain {
    pub fn of(provider: Arc<dyn Provider>) -> Self {
        Chain::new(vec![Link::new(provider, None)])
    }

    /// A chain with these providers; there must be at least one.
    pub fn new(mut links: Vec<Link>) -> Self {
        assert!(!links.is_empty(), "a channel needs at least one provider");
        for (position, link) in links.iter_mut().enumerate().skip(1) {
            link.name = format!("{}-{}", link.provider.name(), position + 1);
        }
        Chain { links }
    }

    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The provider that is asked first.
    pub fn first(&self) -> &Link {
        &self.links[0]
    }

    /// Whether messages are only stored and never sent.
    pub fn captures(&self) -> bool {
        self.links.iter().all(|link| link.provider.captures())
    }

    /// The longest time that one attempt may take until the whole message is out.
    pub fn deadline(&self) -> Duration {
        self.links.iter().map(|link| link.provider.deadline()).max().unwrap_or_default() + GRACE
    }

    /// The rate limit in messages a second, over all providers. `None` if one of them has no limit.
    pub fn per_second(&self) -> Option<f64> {
        self.links.iter().map(|link| link.rate_limit.as_ref().map(RateLimit::per_second)).sum()
    }

    pub fn availability(&self) -> Availability {
        let now = Instant::now();
        let waits: Vec<Option<Duration>> = self.links.iter().map(|link| link.closes_in(now)).collect();
        if waits.iter().any(Option::is_none) {
            return Availability::Available;
        }
        match waits.into_iter().flatten().min() {
            None | Some(Duration::ZERO) => Availability::ProbeOnly,
            Some(wait) => Availability::Unavailable(wait),
        }
    }

    /// Waits until the rate limit of the next provider permits a message. A caller that takes a message only then lets
    /// urgent ones overtake.
    pub async fn wait_for_rate_limit(&self) {
        let now = Instant::now();
        let next = self.links.iter().find(|link| link.closes_in(now).is_none());
        if let Some(rate_limit) = next.and_then(|link| link.rate_limit.as_ref()) {
            sleep(rate_limit.wait(now)).await;
        }
    }

    /// Makes one attempt. Providers whose deadline is longer than the remaining lease are not asked. Providers without
    /// a free connection are skipped, too.
    pub async fn send(&self, message: &Message<'_>, lease: impl SendLease) -> ProviderAnswer<'_> {
        let mut wait: Option<Duration> = None;
        let (mut busy, mut down): (Option<ProviderAnswer<'_>>, Option<ProviderAnswer<'_>>) = (None, None);
        for link in &self.links {
            let now = Instant::now();
            let endpoint = link.endpoints.of(link.provider.host(message).as_deref());
            let permit = match endpoint.breaker.admit(now) {
                Ok(permit) => permit,
                Err(closed_for) => {
                    wait = Some(wait.map_or(closed_for, |wait| wait.min(closed_for)));
                    continue;
                }
            };
            let deadline = link.provider.deadline() + GRACE;
            if let Some(rate_limit) = &link.rate_limit {
                match rate_limit.reserve(now, lease.remaining().saturating_sub(deadline)) {
                    Ok(delay) => sleep(delay).await,
                    Err(too_long) => {
                        wait = Some(wait.map_or(too_long, |wait| wait.min(too_long)));
                        continue;
                    }
                }
            }
            if lease.remaining() <= deadline {
                wait.get_or_insert_default();
                continue;
            }
            let limit = deadline + link.provider.answer_timeout();
            let answer = timeout(limit, link.provider.send_with_lease(message, &lease)).await;
            let answer = answer.unwrap_or_else(|_| {
                let error = format!("{} did not answer within {limit:?}", link.name);
                Answer::from(Outcome::Unknown { error }).with_cause(Cause::new("timeout"))
            });
            endpoint.record(permit, &link.name, &answer);
            let answered = ProviderAnswer { answer, provider: &link.name };
            match &answered.answer.outcome {
                Outcome::Down { .. } => down = Some(merge_down(down, answered)),
                Outcome::NotAttempted { .. } => busy = Some(answered),
                _ => return answered,
            }
        }
        busy.or(down).unwrap_or_else(|| ProviderAnswer {
            answer: Outcome::NotAttempted { after: wait.unwrap_or_default() }.into(),
            provider: &self.links[0].name,
        })
    }
}

/// Merges the answers of two providers that are down: both errors, and the shorter wait.
fn merge_down<'a>(before: Option<ProviderAnswer<'a>>, last: ProviderAnswer<'a>) -> ProviderAnswer<'a> {
    let Some(before) = before else { return last };
    let ProviderAnswer { answer, provider } = last;
    match (before.answer.outcome, answer.outcome) {
        (Outcome::Down { after: a, error: said }, Outcome::Down { after: b, error }) => ProviderAnswer {
            answer: Outcome::Down {
                after: a.zip(b).map(|(a, b)| a.min(b)),
                error: format!("{said}; {provider}: {error}"),
            }
            .into(),
            provider,
        },
        (_, outcome) => ProviderAnswer { answer: Answer { outcome, ..answer }, provider },
    }
}
