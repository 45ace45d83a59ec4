//! Every metric of an instance: its name, its labels, and what it means. `docs/guides/alerts.yml` says when somebody
//! should look.
//!
//! A counter is there from the start, at zero, so that whoever waits for it to rise sees the first time, too. A gauge
//! is there once it was measured, and only where it is: zero would say that all is well.

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
/// By `channel` and `status`.
pub const SENDS: &str = "campanile_sends_total";
/// By `channel`, and by what came of it: `resolution`.
pub const DOUBTS: &str = "campanile_doubts_total";
/// By the `stage` that gave up.
pub const DEAD_LETTERS: &str = "campanile_dead_letters_total";
/// By the `stage` that found it known.
pub const DUPLICATES_REFUSED: &str = "campanile_duplicates_refused_total";
/// By what was held: `resource`.
pub const LEASE_LOSSES: &str = "campanile_lease_losses_total";
/// By `task`.
pub const TASK_DEATHS: &str = "campanile_task_deaths_total";
/// By the `stage`, as loops are called.
pub const STAGE_CPU: &str = "campanile_stage_cpu_microseconds_total";
/// By the `stage` that it waits for.
pub const OLDEST_WAITING: &str = "campanile_oldest_waiting_seconds";
/// By `queue`.
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

/// Says what each metric means, and begins to count. Loops are not known here: the supervisor begins with theirs.
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

/// What is received for a web socket is sent by that, and nobody doubts it.
fn register_sends(channel: Channel) {
    count_sends(channel, SendStatus::Sent, 0);
    if channel == Channel::Websocket {
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

/// By the status that followed from the doubt.
pub(crate) fn count_doubt(channel: Channel, status: SendStatus, doubts: u64) {
    let resolution = match status {
        SendStatus::Due => "resend",
        SendStatus::InDoubt => "hold",
        SendStatus::Failed | SendStatus::Sent | SendStatus::Sending | SendStatus::Cancelled => "fail",
    };
    metrics::counter!(DOUBTS, "channel" => channel.as_str(), "resolution" => resolution).increment(doubts);
}

/// Dead letters written, by stage.
pub(crate) fn count_dead_letters(stage: &'static str, dead_letters: u64) {
    metrics::counter!(DEAD_LETTERS, "stage" => stage).increment(dead_letters);
}

/// What was there already, by the stage that noticed.
pub(crate) fn count_duplicates(stage: &'static str, duplicates: u64) {
    metrics::counter!(DUPLICATES_REFUSED, "stage" => stage).increment(duplicates);
}

/// What somebody else had taken over, by what it was.
pub fn count_lost(resource: &'static str, lost: u64) {
    metrics::counter!(LEASE_LOSSES, "resource" => resource).increment(lost);
}
