//! Which rounds a run is made of.

use std::time::Duration;

use crate::fault::{Fault, Hits};
use crate::round::{Backend, Round, Script};

const RESEND: &str = "resend";
const HOLD: &str = "hold";

/// Every back end and number of instances, again and again; each round is given so long.
pub fn soak(length: Duration) -> Vec<Round> {
    let anything = |name, backend, instances, on_doubt| Round {
        name,
        backend,
        instances,
        on_doubt,
        small_disk: false,
        events_per_second: 60,
        script: Script::Anything(length),
    };
    vec![
        anything("servers-2", Backend::Servers, 2, RESEND),
        anything("embedded", Backend::Embedded, 1, HOLD),
        anything("servers-4", Backend::Servers, 4, HOLD),
        Round { small_disk: true, ..anything("embedded-small-disk", Backend::Embedded, 1, RESEND) },
        anything("servers-1", Backend::Servers, 1, HOLD),
        anything("mixed", Backend::Mixed, 1, RESEND),
        Round {
            script: Script::BrokerAway { events: 10_000, length },
            ..anything("broker-away", Backend::Servers, 2, RESEND)
        },
    ]
}

/// The same, small and fixed: every fault at least once, within three minutes.
pub fn selection() -> Vec<Round> {
    let these = |name, backend, instances, on_doubt, faults| Round {
        name,
        backend,
        instances,
        on_doubt,
        small_disk: false,
        events_per_second: 20,
        script: Script::These(faults),
    };
    let deaths = [of(Hits::Instance), of(Hits::Instance)].concat();
    let on_a_small_disk = [of(Hits::Disk), vec![Fault::Kill], of(Hits::Disk)].concat();
    vec![
        these("servers-2", Backend::Servers, 2, RESEND, [of(Hits::Database), of(Hits::Network)].concat()),
        these("servers-4", Backend::Servers, 4, HOLD, of(Hits::Broker)),
        these("servers-1", Backend::Servers, 1, RESEND, deaths.clone()),
        these("mixed", Backend::Mixed, 1, HOLD, of(Hits::Instance)),
        these("embedded", Backend::Embedded, 1, HOLD, [deaths, of(Hits::Provider)].concat()),
        Round {
            small_disk: true,
            ..these("embedded-small-disk", Backend::Embedded, 1, RESEND, on_a_small_disk)
        },
    ]
}

fn of(hits: Hits) -> Vec<Fault> {
    Fault::ALL.into_iter().filter(|fault| fault.hits() == hits).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_selection_has_every_fault() {
        let selected: BTreeSet<Fault> = selection()
            .into_iter()
            .flat_map(|round| match round.script {
                Script::These(faults) => faults,
                Script::Anything(_) | Script::BrokerAway { .. } => Vec::new(),
            })
            .collect();
        assert_eq!(selected, Fault::ALL.into());
    }

    #[test]
    fn a_soak_has_both_back_ends_with_one_two_and_four_instances() {
        let rounds = soak(Duration::from_secs(1));
        let has =
            |backend, instances| rounds.iter().any(|r| r.backend == backend && r.instances == instances);
        assert!(has(Backend::Embedded, 1) && has(Backend::Mixed, 1));
        assert!([1, 2, 4].into_iter().all(|instances| has(Backend::Servers, instances)));
    }
}
