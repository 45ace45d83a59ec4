//! Faults of the network between instances and what they connect to.

use std::time::Duration;

use super::{Fault, hold};
use crate::random::Random;
use crate::world::World;
use campanile_testkit::proxy::{Mode, Proxy};

pub async fn happen(fault: Fault, world: &World, random: &mut Random) {
    let lines = draw(world, random);
    let set = |mode| {
        for line in &lines {
            line.set(mode);
        }
    };
    match fault {
        Fault::DelayNetwork => {
            set(Mode::Delay(Duration::from_millis(random.between(5, 300))));
            hold(random, 1_000, 4_000).await;
        }
        Fault::BlackHoleNetwork => {
            set(Mode::BlackHole);
            hold(random, 500, 6_000).await;
            // Swallowed data arrives late, or never.
            if random.percent(50) {
                cut(&lines);
            }
        }
        Fault::RefuseNetwork => {
            set(Mode::Refuse);
            hold(random, 500, 4_000).await;
        }
        Fault::HalfCloseNetwork => {
            for line in &lines {
                line.half_close();
            }
        }
        _ => cut(&lines),
    }
    set(Mode::Pass);
}

fn cut(lines: &[&Proxy]) {
    for line in lines {
        line.cut();
    }
}

/// The proxies of one instance or of all, to one of their servers.
fn draw<'a>(world: &'a World, random: &mut Random) -> Vec<&'a Proxy> {
    let all = random.percent(30);
    let one = random.pick(&world.instances).into_iter();
    let instances: Vec<_> = if all { world.instances.iter().collect() } else { one.collect() };
    loop {
        let leads_to = random.below(3);
        let lines: Vec<&Proxy> = instances
            .iter()
            .filter_map(|instance| match leads_to {
                0 => instance.to_database.as_ref(),
                1 => instance.to_broker.as_ref(),
                _ => Some(&instance.to_provider),
            })
            .collect();
        if !lines.is_empty() {
            return lines;
        }
    }
}
