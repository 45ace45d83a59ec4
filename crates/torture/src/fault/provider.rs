//! Faults of a provider.

use anyhow::{Result, bail};
use serde_json::json;

use super::{Fault, hold};
use crate::random::Random;
use crate::world::World;

pub async fn happen(fault: Fault, world: &World, random: &mut Random) -> Result<()> {
    // Sometimes all requests, sometimes some of them.
    let share = random.between(50, 1_000);
    let mode = match fault {
        Fault::SlowProvider => json!({"slow_ms": random.between(50, 900)}),
        Fault::BusyProvider => json!({"busy_429": share}),
        Fault::BrokenProvider => json!({"refuse_503": share}),
        Fault::ProviderHangsUp => json!({"accept_then_close": share}),
        Fault::SilentProvider => json!({"accept_then_silence": share}),
        _ => bail!("{} is not a fault of the provider", fault.name()),
    };
    world.provider.behave(mode).await?;
    hold(random, 500, 3_000).await;
    world.provider.behave_well().await
}
