//! Faults of a process: it dies, at any moment or at a chosen one, is told to stop, is suspended, or has a wrong clock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Fault;
use crate::instance::Instance;
use crate::load::Load;
use crate::people::Group;
use crate::random::Random;
use crate::round::Backend;
use crate::world::{LEASE, World};

/// The places in the pipeline where a process can be told to die. A test compares them with the code.
pub const FAILPOINTS: [&str; 13] = [
    "accept.after_commit",
    "fan_out.before_commit",
    "fan_out.after_commit",
    "fan_out.between_chunks",
    "publish.before_confirm",
    "publish.after_confirm",
    "receive.before_commit",
    "receive.after_commit",
    "send.before_provider",
    "send.after_provider",
    "settle.before_commit",
    "settle.after_commit",
    "recover.before_restore",
];

/// How long an instance may take to reach its failpoint. Some failpoints need a special situation.
const REACHED_WITHIN: Duration = Duration::from_secs(4);

pub async fn happen(fault: Fault, world: &World, load: &Load, random: &mut Random) -> Result<()> {
    // A suspended instance is left alone; otherwise it would never wake.
    let awake: Vec<&Arc<Instance>> =
        world.instances.iter().filter(|instance| !instance.is_paused()).collect();
    let Some(instance) = random.pick(&awake).copied() else { return Ok(()) };
    match fault {
        Fault::Terminate => drop(instance.terminate()),
        Fault::Pause => instance.sleep(LEASE + Duration::from_millis(random.between(500, 2_000))).await,
        Fault::KillAtFailpoint => kill_at(world.next_failpoint(random), instance, world, load, random).await,
        Fault::WrongClock => {
            let faketime = world.servers.faketime.as_deref().context("CAMPANILE_TEST_FAKETIME is not set")?;
            // On SQLite this is also the database's clock. Work that was deferred by a clock ahead would wait for an
            // hour once the clock is right.
            let is_fast = random.percent(50) && world.round.backend != Backend::Embedded;
            let wrong = if is_fast { "+3600s" } else { "-3600s" };
            instance.next_start_with(&[
                ("LD_PRELOAD", faketime),
                ("FAKETIME", wrong),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ]);
            instance.kill();
        }
        _ => drop(instance.kill()),
    }
    Ok(())
}

async fn kill_at(
    failpoint: &'static str,
    instance: &Instance,
    world: &World,
    load: &Load,
    random: &mut Random,
) {
    // Failpoints that need a special situation are reached once.
    let nth = if needs_a_reason(failpoint) { 1 } else { random.between(1, 3) };
    instance.arm(failpoint, nth);
    instance.kill();
    if let Err(error) = lead_to(failpoint, world, load, random).await {
        // Another fault may prevent this.
        world.journal.note(format_args!("{failpoint} could not be led to: {error:#}"));
    }
    if !instance.has_died_at_its_failpoint(REACHED_WITHIN).await {
        world.journal.count("failpoints not reached in time");
        instance.kill();
    }
}

fn needs_a_reason(failpoint: &str) -> bool {
    ["fan_out.between_chunks", "recover.before_restore"].contains(&failpoint)
}

async fn lead_to(failpoint: &str, world: &World, load: &Load, random: &mut Random) -> Result<()> {
    match failpoint {
        "fan_out.between_chunks" if !world.round.small_disk => {
            let name = format!("large-{}-", random.below(u64::MAX));
            load.at_once(world, &name, Group::LargeAudience, 1).await;
            Ok(())
        }
        "recover.before_restore" if Fault::DeleteQueue.possible(world) == Ok(true) => {
            super::broker::delete_a_queue(world, random).await
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split("fail_point!(\"").skip(1) {
                found.insert(rest.split('"').next().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn every_failpoint_of_the_engine_is_one_to_die_at() {
        let mut found = BTreeSet::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src"), &mut found);
        assert_eq!(found, FAILPOINTS.map(str::to_owned).into());
    }
}
