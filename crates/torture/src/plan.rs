//! The rounds of a run.

use std::time::Duration;

use crate::fault::{FAILPOINTS, Fault, Hits};
use crate::round::{Backend, OnDoubt, Round, Script};

/// The time for hostile requests in the selection, per back end.
const SELECTION_FUZZ: Duration = Duration::from_secs(8);

/// The rounds of a soak: every back end and number of instances, each for `length`.
pub fn soak(length: Duration) -> Vec<Round> {
    let anything = |name, backend, instances, on_doubt| Round {
        name,
        backend,
        instances,
        on_doubt,
        small_disk: false,
        sweep: false,
        events_per_second: 60,
        script: Script::Anything(length),
    };
    vec![
        Round { sweep: true, ..anything("servers-2", Backend::Servers, 2, OnDoubt::Resend) },
        anything("embedded", Backend::Embedded, 1, OnDoubt::Hold),
        anything("servers-4", Backend::Servers, 4, OnDoubt::Hold),
        Round { small_disk: true, ..anything("embedded-small-disk", Backend::Embedded, 1, OnDoubt::Resend) },
        anything("servers-1", Backend::Servers, 1, OnDoubt::Hold),
        anything("mixed", Backend::Mixed, 1, OnDoubt::Resend),
        Round {
            script: Script::BrokerAway { events: 10_000, length },
            ..anything("broker-away", Backend::Servers, 2, OnDoubt::Resend)
        },
        Round {
            script: Script::Fuzz(length),
            ..anything("fuzz-embedded", Backend::Embedded, 1, OnDoubt::Resend)
        },
        Round {
            script: Script::Fuzz(length),
            ..anything("fuzz-servers", Backend::Servers, 1, OnDoubt::Resend)
        },
    ]
}

/// A small, fixed selection: every fault at least once, and some hostile requests, within four minutes.
pub fn selection() -> Vec<Round> {
    let these = |name, backend, instances, on_doubt, faults| Round {
        name,
        backend,
        instances,
        on_doubt,
        small_disk: false,
        sweep: false,
        events_per_second: 20,
        script: Script::These(faults),
    };
    let fuzz = |name, backend| Round {
        script: Script::Fuzz(SELECTION_FUZZ),
        ..these(name, backend, 1, OnDoubt::Resend, Vec::new())
    };
    let deaths = vec![Fault::KillAtFailpoint; FAILPOINTS.len()];
    let purge = |fault: &Fault| *fault == Fault::PurgeQueue;
    let (purged, broker) = of(Hits::Broker).into_iter().partition(purge);
    let around = [of(Hits::Database), of(Hits::Network), purged].concat();
    let on_a_small_disk = [of(Hits::Disk), vec![Fault::Kill], of(Hits::Disk)].concat();
    vec![
        Round { sweep: true, ..these("servers-2", Backend::Servers, 2, OnDoubt::Resend, around) },
        these("servers-4", Backend::Servers, 4, OnDoubt::Hold, [broker, vec![Fault::Pause]].concat()),
        these(
            "servers-1",
            Backend::Servers,
            1,
            OnDoubt::Resend,
            [deaths.clone(), of(Hits::Instance)].concat(),
        ),
        these("mixed", Backend::Mixed, 1, OnDoubt::Hold, vec![Fault::Kill]),
        these("embedded", Backend::Embedded, 1, OnDoubt::Hold, [deaths, of(Hits::Provider)].concat()),
        Round {
            small_disk: true,
            ..these("embedded-small-disk", Backend::Embedded, 1, OnDoubt::Resend, on_a_small_disk)
        },
        fuzz("fuzz-embedded", Backend::Embedded),
        fuzz("fuzz-servers", Backend::Servers),
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
                Script::Anything(_) | Script::BrokerAway { .. } | Script::Fuzz(_) => Vec::new(),
            })
            .collect();
        assert_eq!(selected, Fault::ALL.into());
    }

    #[test]
    fn soak_and_selection_send_hostile_requests_to_both_back_ends() {
        for rounds in [soak(Duration::from_secs(1)), selection()] {
            let fuzzed: Vec<Backend> = rounds
                .iter()
                .filter(|round| matches!(round.script, Script::Fuzz(_)))
                .map(|round| round.backend)
                .collect();
            assert_eq!(fuzzed, [Backend::Embedded, Backend::Servers]);
        }
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
