//! When each webhook may be posted to. Slack accepts about one post a second per webhook, with short bursts, and
//! refuses more with 429 and a time to wait. A post that must wait reserves a slot and returns for it, so posts keep
//! their order. A 429 delays the slots of all posts that wait for the same webhook.
//!
//! Nobody waits here: the caller gets the time and lets the send wait in the database.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use campanile_domain::id::SendKey;
use tokio::time::Instant;

/// How many posts an idle webhook accepts at once.
const BURST: u32 = 3;
/// How long a slot is kept. After that its post was lost, or another instance sends it.
const GRACE: Duration = Duration::from_secs(5);
/// A post may use its slot this much earlier, because databases round times to milliseconds.
const TOLERANCE: Duration = Duration::from_millis(2);
/// The longest wait for a webhook.
const MAX_WAIT: Duration = Duration::from_mins(15);
/// The most webhooks with slots. Further ones are not paced until one of these is idle.
const MAX_WEBHOOKS: usize = 10_000;
/// The most slots per webhook. Further posts get none and ask again.
const MAX_SLOTS: usize = 10_000;

/// The rate limits of all webhooks.
#[derive(Debug)]
pub struct WebhookRateLimits {
    interval: Duration,
    hasher: RandomState,
    /// By a hash of the webhook, which is a secret.
    queues: Mutex<HashMap<u64, WebhookQueue>>,
}

impl WebhookRateLimits {
    /// `per_second` must be positive.
    pub fn new(per_second: f64) -> Self {
        WebhookRateLimits {
            interval: Duration::from_secs_f64(1.0 / per_second),
            hasher: RandomState::new(),
            queues: Mutex::default(),
        }
    }

    /// Uses the slot of this post, or returns how long it is until then.
    pub fn acquire(&self, webhook: &str, post: SendKey, now: Instant) -> Result<(), Duration> {
        self.with_queue(webhook, now, |queue| queue.acquire(post, self.interval, now)).unwrap_or(Ok(()))
    }

    /// Records that the webhook refused a post and must be left alone for `wait`. Returns the time until this post's
    /// next slot, which is the first one.
    pub fn refused(&self, webhook: &str, post: SendKey, wait: Duration, now: Instant) -> Duration {
        let wait = wait.clamp(self.interval, MAX_WAIT.max(self.interval));
        self.with_queue(webhook, now, |queue| queue.refused(post, wait, self.interval, now)).unwrap_or(wait)
    }

    /// Runs `f` on the webhook's queue. `None` if there is no room for another webhook.
    fn with_queue<T>(
        &self,
        webhook: &str,
        now: Instant,
        act: impl FnOnce(&mut WebhookQueue) -> T,
    ) -> Option<T> {
        let key = self.hasher.hash_one(webhook);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= MAX_WEBHOOKS && !queues.contains_key(&key) {
            queues.retain(|_, queue| !queue.is_idle(now));
            if queues.len() >= MAX_WEBHOOKS {
                return None;
            }
        }
        Some(act(queues.entry(key).or_insert_with(|| WebhookQueue::new(now, self.interval))))
    }
}

/// The posts that wait for one webhook.
#[derive(Debug)]
struct WebhookQueue {
    /// The first slot that is not reserved.
    next: Instant,
    /// No post goes out before this time.
    blocked_until: Instant,
    /// The total delay that refusals have added to reserved slots.
    delay: Duration,
    slots: HashMap<SendKey, Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    at: Instant,
    /// The queue's delay when the slot was reserved.
    delay: Duration,
}

impl Slot {
    /// The time of the slot, given the queue's current delay, which never decreases.
    fn after(self, delay: Duration) -> Instant {
        self.at + delay.saturating_sub(self.delay)
    }
}

impl WebhookQueue {
    fn new(now: Instant, interval: Duration) -> Self {
        let next = earlier(now, interval * BURST);
        WebhookQueue { next, blocked_until: now, delay: Duration::ZERO, slots: HashMap::new() }
    }

    fn acquire(&mut self, post: SendKey, interval: Duration, now: Instant) -> Result<(), Duration> {
        if let Some(slot) = self.slots.get(&post) {
            let at = slot.after(self.delay);
            if at > now + TOLERANCE {
                return Err(at - now);
            }
            self.slots.remove(&post);
            if now < at + GRACE {
                return Ok(());
            }
        }
        let at = self.next.max(earlier(now, interval * (BURST - 1)));
        if at <= now {
            self.next = at + interval;
            return Ok(());
        }
        if self.reserve(post, at, now) {
            self.next = at + interval;
        }
        Err(at - now)
    }

    fn refused(&mut self, post: SendKey, wait: Duration, interval: Duration, now: Instant) -> Duration {
        let start = self.blocked_until.max(now + wait);
        // Every slot is later than the earlier block, so this makes room for one more at the start.
        let delay = start - self.blocked_until.max(now) + interval;
        self.delay += delay;
        self.next = (self.next + delay).max(start + interval);
        self.blocked_until = start;
        self.reserve(post, start, now);
        start - now
    }

    /// Reserves a slot; returns whether there was room.
    fn reserve(&mut self, post: SendKey, at: Instant, now: Instant) -> bool {
        if self.slots.len() >= MAX_SLOTS {
            let delay = self.delay;
            self.slots.retain(|_, slot| now < slot.after(delay) + GRACE);
        }
        let has_capacity = self.slots.len() < MAX_SLOTS;
        if has_capacity {
            self.slots.insert(post, Slot { at, delay: self.delay });
        }
        has_capacity
    }

    /// Whether all slots have passed.
    fn is_idle(&self, now: Instant) -> bool {
        self.next + GRACE < now
    }
}

fn earlier(now: Instant, by: Duration) -> Instant {
    now.checked_sub(by).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use campanile_domain::channel::Channel;
    use campanile_domain::id::NotificationId;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn post() -> SendKey {
        SendKey { notification_id: NotificationId::generate(), channel: Channel::Slack }
    }

    /// The waits of these posts if they come at once.
    fn waits(rate_limits: &WebhookRateLimits, posts: &[SendKey], now: Instant) -> Vec<u64> {
        let wait = |post: &SendKey| rate_limits.acquire("a", *post, now).err().unwrap_or_default();
        posts.iter().map(|post| wait(post).as_secs()).collect()
    }

    fn posts(count: usize) -> Vec<SendKey> {
        (0..count).map(|_| post()).collect()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_one_by_one_in_their_order() {
        let (rate_limits, now, posts) = (WebhookRateLimits::new(1.0), Instant::now(), posts(6));
        assert_eq!(waits(&rate_limits, &posts, now), [0, 0, 0, 1, 2, 3]);
        assert_eq!(waits(&rate_limits, &posts[4..], now), [2, 3], "who asks too early is told the same");
        assert_eq!(rate_limits.acquire("b", posts[5], now), Ok(()), "another webhook is not concerned");
        // A late post uses its own slot and no other.
        let late = now + SECOND * 3;
        assert_eq!(rate_limits.acquire("a", post(), late), Err(SECOND));
        assert_eq!(waits(&rate_limits, &posts[3..], late), [0, 0, 0]);
    }

    #[test]
    fn an_idle_webhook_takes_a_burst_again_and_no_more() {
        let (rate_limits, now) = (WebhookRateLimits::new(1.0), Instant::now());
        waits(&rate_limits, &posts(3), now);
        assert_eq!(waits(&rate_limits, &posts(4), now + SECOND * 100), [0, 0, 0, 1]);
    }

    #[test]
    fn a_refusal_delays_everybody_and_its_own_post_is_the_next() {
        let (rate_limits, now, posts) = (WebhookRateLimits::new(1.0), Instant::now(), posts(6));
        waits(&rate_limits, &posts, now);
        assert_eq!(rate_limits.refused("a", posts[0], SECOND * 30, now), SECOND * 30);
        assert_eq!(waits(&rate_limits, &posts[3..], now), [32, 33, 34]);
        // A post that was in progress at the same time is told the same.
        assert_eq!(rate_limits.refused("a", posts[1], SECOND * 30, now), SECOND * 30);
        assert_eq!(waits(&rate_limits, &posts, now), [31, 30, 36, 33, 34, 35]);
        assert_eq!(rate_limits.acquire("a", post(), now), Err(SECOND * 37));
        assert_eq!(rate_limits.acquire("b", post(), now), Ok(()));
    }

    #[test]
    fn what_is_asked_for_has_limits() {
        let (rate_limits, now) = (WebhookRateLimits::new(1.0), Instant::now());
        assert_eq!(rate_limits.refused("a", post(), Duration::ZERO, now), SECOND);
        assert_eq!(rate_limits.refused("b", post(), SECOND * 86_400, now), MAX_WAIT);
    }

    #[test]
    fn a_slot_that_was_missed_is_lost() {
        let (rate_limits, now, posts) = (WebhookRateLimits::new(1.0), Instant::now(), posts(40));
        waits(&rate_limits, &posts, now);
        let missed = rate_limits.acquire("a", posts[3], now + SECOND * 10);
        assert_eq!(missed, Err(SECOND * 28), "it is at the end of the line now");
    }

    #[test]
    fn what_is_remembered_has_limits() {
        let (rate_limits, now) = (WebhookRateLimits::new(1.0), Instant::now());
        waits(&rate_limits, &posts(MAX_SLOTS + 3), now);
        let queue_end = SECOND * u32::try_from(MAX_SLOTS).unwrap() + SECOND;
        assert_eq!(rate_limits.acquire("a", post(), now), Err(queue_end));
        assert_eq!(rate_limits.acquire("a", post(), now), Err(queue_end), "nobody has a turn any more");
        for webhook in 0..MAX_WEBHOOKS {
            assert_eq!(rate_limits.acquire(&webhook.to_string(), post(), now), Ok(()));
        }
        assert_eq!(rate_limits.queues.lock().unwrap().len(), MAX_WEBHOOKS);
        rate_limits.acquire("new", post(), now + SECOND * 10).unwrap();
        assert_eq!(rate_limits.queues.lock().unwrap().len(), 2, "all but the busy one were idle");
    }
}
