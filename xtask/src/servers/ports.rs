//! Finds free ports.
//!
//! They are below the range of outgoing connections. Otherwise a client that retries while a server restarts could be
//! given the server's own port. It could then keep the port, or even connect to itself.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, Result};

const LOWEST: u16 = 10_000;

/// Linux's default for the first port of outgoing connections.
const FIRST_OUTGOING: u16 = 32_768;

/// Returns different free ports. Another process may take one before its server does.
pub fn free<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let range = below_outgoing(&setting);
    let span = u64::from(range.end - range.start);
    // A random start keeps two concurrent runs apart.
    let start = RandomState::new().build_hasher().finish() % span;
    let listeners: Vec<TcpListener> = (start..start + span)
        .filter_map(|number| u16::try_from(number % span).ok())
        .filter_map(|offset| TcpListener::bind((Ipv4Addr::LOCALHOST, range.start + offset)).ok())
        .take(COUNT)
        .collect();
    let ports: Vec<u16> = listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.port()))
        .collect::<Result<_, _>>()?;
    ports.try_into().ok().with_context(|| format!("there are no {COUNT} free ports on 127.0.0.1"))
}

/// The setting has two numbers, the first and the last outgoing port.
fn below_outgoing(setting: &str) -> Range<u16> {
    let first = setting.split_whitespace().next().and_then(|number| number.parse().ok());
    // If too few ports are below, outgoing ports are used.
    let end = first.filter(|first| *first > LOWEST + 1_000).unwrap_or(FIRST_OUTGOING);
    LOWEST..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different() {
        let mut ports = free::<5>().unwrap();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] < pair[1]), "{ports:?}");
    }

    #[test]
    fn taken_port_is_not_offered() {
        let taken = free::<1>().unwrap()[0];
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken));
        assert!((0..20).all(|_| !free::<3>().unwrap().contains(&taken)));
    }

    #[test]
    fn outgoing_ports_are_left_out() {
        assert_eq!(below_outgoing("32768\t60999\n"), 10_000..32_768);
        assert_eq!(below_outgoing("15000 60999"), 10_000..15_000);
        assert_eq!(below_outgoing("1024 65535"), 10_000..32_768);
        assert_eq!(below_outgoing(""), 10_000..32_768);
    }
}
