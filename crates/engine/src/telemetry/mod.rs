//! Every metric of an instance: its name, its labels, and its meaning. `docs/guides/alerts.yml` says which values need
//! attention.
//!
//! A counter exists from the start, at zero, so that an alert on its increase also sees the first increment. A gauge
//! exists only on the instance that measures it, and only after the first measurement: zero would look healthy.

pub mod latency;
pub mod queue_age;
pub(crate) mod stage_cpu;

use campanile_domain::channel::Channel;
use campanile_domain::status::SendStatus;

pub const EVENTS_ACCEPTED: &str = "campanile_events_accepted_total";
pub const FAN_OUT_EVENTS: &str = "campanile_fan_out_events_total";
pub const FAN_OUT_ROWS: &str = "campanile_fan_out_rows_total";
pub const PUBLISHED: &str = "campanile_published_total";
pub const REFUSED: &str = "campanile_refused_total";
pub const RECEIVED: &str = "campanile_received_total";
pub const REPUBLISHED: &str = "campanile_republished_total";
pub const DELETED_ROWS: &str = "campanile_deleted_rows_total";
pub const TAKEN_OVER: &str = "campanile_taken_over_total";
/// Labels: `channel`, `status`.
pub const SENDS: &str = "campanile_sends_total";
/// Labels: `channel`, `resolution`.
pub const DOUBTS: &str = "campanile_doubts_total";
/// Label: `stage` that wrote the dead letter.
pub const DEAD_LETTERS: &str = "campanile_dead_letters_total";
/// Label: `stage` that noticed the duplicate.
pub const DUPLICATES_REFUSED: &str = "campanile_duplicates_refused_total";
/// Label: `resource` that was lost.
pub const LEASE_LOSSES: &str = "campanile_lease_losses_total";
/// Label: `task`.
pub const TASK_DEATHS: &str = "campanile_task_deaths_total";
/// Label: `stage`, the name of the task.
pub const STAGE_CPU: &str = "campanile_stage_cpu_microseconds_total";
/// Label: `stage` that the item waits for.
pub const OLDEST_WAITING: &str = "campanile_oldest_waiting_seconds";
/// Label: `queue`.
pub const QUEUE_DEPTH: &str = "campanile_queue_depth";

const COUNTERS: [(&str, &str); 16] = [
    (EVENTS_ACCEPTED, "Events accepted over HTTP"),
    (FAN_OUT_EVENTS, "Events fanned out; each chunk of a large event counts as one"),
    (FAN_OUT_ROWS, "Outbox rows written"),
    (PUBLISHED, "Outbox rows confirmed by the broker"),
    (REFUSED, "Outbox rows rejected by the broker, per attempt"),
    (RECEIVED, "Messages received, without duplicates"),
    (REPUBLISHED, "Outbox rows lost by the broker and queued for republishing"),
    (DELETED_ROWS, "Rows deleted by retention"),
    (TAKEN_OVER, "Sends taken over from dead instances"),
    (SENDS, "Send outcomes by status; DUE is a retry"),
    (DOUBTS, "Attempts with unknown delivery, by resolution: resend, hold or fail"),
    (DEAD_LETTERS, "Dead letters written, by stage"),
    (DUPLICATES_REFUSED, "Duplicates skipped, by stage"),
    (LEASE_LOSSES, "Leases lost to another instance, by resource"),
    (TASK_DEATHS, "Tasks that died and were restarted"),
    (STAGE_CPU, "CPU time of a stage's tasks in microseconds, without drivers and provider calls"),
];

const GAUGES: [(&str, &str); 2] = [
    (OLDEST_WAITING, "Age of the oldest item waiting for a stage; NaN while the database is unavailable"),
    (QUEUE_DEPTH, "Undelivered messages in a queue"),
];

/// Counters without labels.
const PLAIN: [&str; 9] = [
    EVENTS_ACCEPTED,
    FAN_OUT_EVENTS,
    FAN_OUT_ROWS,
    PUBLISHED,
    REFUSED,
    RECEIVED,
    REPUBLISHED,
    DELETED_ROWS,
    TAKEN_OVER,
];

/// Describes each metric and starts its counters at zero. The supervisor starts the counter of each task.
pub fn register() {
    for (name, help) in COUNTERS {
        metrics::describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        metrics::describe_gauge!(name, help);
    }
    for name in PLAIN {
        metrics::counter!(name).increment(0);
    }
    for stage in ["fan_out", "publish", "receive", "send"] {
        metrics::counter!(DEAD_LETTERS, "stage" => stage).increment(0);
    }
    for stage in ["accept", "fan_out", "receive"] {
        metrics::counter!(DUPLICATES_REFUSED, "stage" => stage).increment(0);
    }
    for resource in ["event", "chunk", "send", "broker"] {
        metrics::counter!(LEASE_LOSSES, "resource" => resource).increment(0);
    }
    for channel in Channel::ALL {
        register_sends(channel);
    }
}

/// Channels whose messages are sent on receipt have no retries and no doubts.
fn register_sends(channel: Channel) {
    count_sends(channel, SendStatus::Sent, 0);
    if channel.is_sent_on_receipt() {
        return;
    }
    for status in [SendStatus::Due, SendStatus::Failed, SendStatus::InDoubt] {
        count_sends(channel, status, 0);
        count_doubt(channel, status, 0);
    }
}

pub(crate) fn count_sends(channel: Channel, status: SendStatus, sends: u64) {
    metrics::counter!(SENDS, "channel" => channel.as_str(), "status" => status.as_str()).increment(sends);
}

/// Counts attempts whose delivery is unknown, by the resolution. `status` is the resulting state of the send.
pub(crate) fn count_doubt(channel: Channel, status: SendStatus, doubts: u64) {
    let resolution = match status {
        SendStatus::Due => "resend",
        SendStatus::InDoubt => "hold",
        SendStatus::Failed | SendStatus::Sent | SendStatus::Sending | SendStatus::Cancelled => "fail",
    };
    metrics::counter!(DOUBTS, "channel" => channel.as_str(), "resolution" => resolution).increment(doubts);
}

pub(crate) fn count_dead_letters(stage: &'static str, dead_letters: u64) {
    metrics::counter!(DEAD_LETTERS, "stage" => stage).increment(dead_letters);
}

/// Counts duplicates by the stage that skipped them.
pub(crate) fn count_duplicates(stage: &'static str, duplicates: u64) {
    metrics::counter!(DUPLICATES_REFUSED, "stage" => stage).increment(duplicates);
}

/// Counts leases that another instance has taken over.
pub fn count_lost(resource: &'static str, lost: u64) {
    metrics::counter!(LEASE_LOSSES, "resource" => resource).increment(lost);
}
