//! What happens to RabbitMQ, and what its operators do to it.

use anyhow::{Context, Result, bail};

use super::{Fault, hold};
use crate::random::Random;
use crate::world::World;

/// An acknowledgement of what was never delivered: the server closes the channel for it, and only that.
const CLOSE_CHANNELS: &str =
    "[rabbit_channel:do(P, {'basic.ack', 999999999, false}) || P <- rabbit_channel:list()].";
/// More than any disk has, and what it is told at its start.
const FULL: &str = "100000000000000";
const NOT_FULL: &str = "50MB";

pub async fn happen(fault: Fault, world: &World, random: &mut Random) -> Result<()> {
    let servers = &world.servers;
    let control = async |arguments: &[&str]| servers.rabbitmqctl(arguments).await.map(drop);
    match fault {
        Fault::CloseBrokerConnections => control(&["close_all_connections", "torture"]).await,
        Fault::CloseBrokerChannels => control(&["eval", CLOSE_CHANNELS]).await,
        Fault::RestartBroker if servers.restarts_rabbitmq() && random.percent(50) => {
            servers.rabbitmq_node("stop").await?;
            servers.rabbitmq_node("start").await
        }
        Fault::RestartBroker => {
            control(&["stop_app"]).await?;
            hold(random, 0, 3_000).await;
            control(&["start_app"]).await
        }
        Fault::KillBroker => {
            servers.rabbitmq_node("kill").await?;
            hold(random, 0, 3_000).await;
            servers.rabbitmq_node("start").await
        }
        Fault::BrokerDiskAlarm => {
            control(&["set_disk_free_limit", FULL]).await?;
            hold(random, 1_000, 6_000).await;
            control(&["set_disk_free_limit", NOT_FULL]).await
        }
        Fault::WipeBroker if servers.restarts_rabbitmq() && random.percent(50) => {
            for step in ["kill", "wipe", "start"] {
                servers.rabbitmq_node(step).await?;
            }
            Ok(())
        }
        Fault::WipeBroker => {
            control(&["stop_app"]).await?;
            control(&["force_reset"]).await?;
            control(&["start_app"]).await
        }
        Fault::DeleteQueue => on_a_queue("delete_queue", world, random).await,
        Fault::PurgeQueue => on_a_queue("purge_queue", world, random).await,
        _ => bail!("{} is none of RabbitMQ's", fault.name()),
    }
}

/// Everything works again, whatever was going on.
pub async fn heal(world: &World) -> Result<()> {
    // One that is up says so, and that is well, too.
    if world.servers.restarts_rabbitmq() {
        let _ = world.servers.rabbitmq_node("start").await;
    }
    world.servers.rabbitmqctl(&["start_app"]).await?;
    world.servers.rabbitmqctl(&["set_disk_free_limit", NOT_FULL]).await.map(drop)
}

/// One that is in use, unless an instance is just making it again.
async fn on_a_queue(what: &str, world: &World, random: &mut Random) -> Result<()> {
    const QUEUES: [&str; 3] = ["notification.restaurant", "notification.restaurant.high", "notification.dlq"];
    let queue = random.pick(&QUEUES).context("there are queues")?;
    let name = format!("{}{queue}", world.prefix);
    let listed = world.servers.rabbitmqctl(&["-q", "list_queues", "name", "--no-table-headers"]).await?;
    if listed.lines().any(|queue| queue == name) {
        world.servers.rabbitmqctl(&["-q", what, &name]).await?;
    }
    Ok(())
}
