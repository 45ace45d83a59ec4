//! Faults of RabbitMQ, and what its operators do to it.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Fault, hold};
use crate::database::{Database, connect};
use crate::load::Load;
use crate::people::Group;
use crate::random::Random;
use crate::world::World;

/// Acknowledges a message that was never delivered; the server then closes only the channel.
const CLOSE_CHANNELS: &str =
    "[rabbit_channel:do(P, {'basic.ack', 999999999, false}) || P <- rabbit_channel:list()].";
/// The queue of most events that the producers write.
const QUEUE: &str = "notification.restaurant";
/// A limit of free space that no disk has, and the limit at the start.
const FULL: &str = "100000000000000";
const NOT_FULL: &str = "50MB";

pub async fn happen(fault: Fault, world: &World, load: &Load, random: &mut Random) -> Result<()> {
    let _alone = world.broker.lock().await;
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
        Fault::WipeBroker | Fault::DeleteQueue | Fault::PurgeQueue => lose(fault, world, load, random).await,
        _ => bail!("{} is not a fault of RabbitMQ", fault.name()),
    }
}

/// Repairs the broker after any of these faults.
pub async fn heal(world: &World) -> Result<()> {
    // A node that is already up reports an error, which is fine.
    if world.servers.restarts_rabbitmq() {
        let _ = world.servers.rabbitmq_node("start").await;
    }
    world.servers.rabbitmqctl(&["start_app"]).await?;
    world.servers.rabbitmqctl(&["set_disk_free_limit", NOT_FULL]).await.map(drop)
}

/// Loses messages while there are some. Nobody can receive meanwhile, and processes with messages in memory die.
async fn lose(fault: Fault, world: &World, load: &Load, random: &mut Random) -> Result<()> {
    const ARRIVE_WITHIN: Duration = Duration::from_millis(1_500);
    let Database::Postgres { url } = &world.database else { bail!("this world has no PostgreSQL") };
    let client = connect(url).await?;
    client.batch_execute("BEGIN; LOCK TABLE notification IN SHARE MODE").await?;
    load.at_once(world, &format!("backlog-{}-", random.below(u64::MAX)), Group::Staff, 100).await;
    tokio::time::sleep(ARRIVE_WITHIN).await;
    match fault {
        Fault::WipeBroker => wipe(world, random).await?,
        Fault::DeleteQueue => on_the_queue("delete_queue", QUEUE, world).await?,
        _ => on_the_queue("purge_queue", QUEUE, world).await?,
    }
    for instance in &world.instances {
        instance.kill();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(client.batch_execute("ROLLBACK").await?)
}

/// The node's disk is lost, or somebody resets the node.
async fn wipe(world: &World, random: &mut Random) -> Result<()> {
    if world.servers.restarts_rabbitmq() && random.percent(50) {
        for step in ["kill", "wipe", "start"] {
            world.servers.rabbitmq_node(step).await?;
        }
        return Ok(());
    }
    for step in ["stop_app", "force_reset", "start_app"] {
        world.servers.rabbitmqctl(&[step]).await?;
    }
    Ok(())
}

/// Deletes a queue with its messages.
pub async fn delete_a_queue(world: &World, random: &mut Random) -> Result<()> {
    const QUEUES: [&str; 3] = [QUEUE, "notification.restaurant.high", "notification.dlq"];
    let _alone = world.broker.lock().await;
    let queue = random.pick(&QUEUES).context("there are queues")?;
    on_the_queue("delete_queue", queue, world).await
}

/// Runs a command on a queue, unless an instance is creating it at this moment.
async fn on_the_queue(what: &str, queue: &str, world: &World) -> Result<()> {
    let name = format!("{}{queue}", world.prefix);
    let listed = world.servers.rabbitmqctl(&["-q", "list_queues", "name", "--no-table-headers"]).await?;
    if listed.lines().any(|queue| queue == name) {
        world.servers.rabbitmqctl(&["-q", what, &name]).await?;
    }
    Ok(())
}
