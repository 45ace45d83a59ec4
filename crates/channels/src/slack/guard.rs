//! Checks where a host name leads at the moment of connecting. A name that passed the allow-list may still resolve to
//! an internal address, or resolve differently a moment later. The connection goes to the checked address.
//!
//! Addresses in the URL itself are not resolved; the operator has allowed those by name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::dns::Unresolved;

/// Lets only public addresses through. `localhost` resolves to this machine and nothing else.
pub struct Guard {
    resolver: Arc<dyn Resolve>,
}

impl Guard {
    pub fn new(resolver: Arc<dyn Resolve>) -> Self {
        Guard { resolver }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let is_local = name.as_str() == "localhost";
        let looked_up = self.resolver.resolve(name);
        Box::pin(async move {
            let is_allowed = |ip: IpAddr| if is_local { ip.is_loopback() } else { is_public(ip) };
            let (allowed, refused): (Vec<SocketAddr>, Vec<SocketAddr>) =
                looked_up.await.map_err(|_| Unresolved)?.partition(|address| is_allowed(address.ip()));
            if allowed.is_empty() && !refused.is_empty() {
                return Err(NoPublicAddress.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// None of a name's addresses may be connected to.
#[derive(Debug)]
pub struct NoPublicAddress;

impl fmt::Display for NoPublicAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name does not resolve to a public address")
    }
}

impl std::error::Error for NoPublicAddress {}

/// Whether an address is public, by IANA's registries of special addresses. For IPv6 only the assigned public ranges
/// count, because most of the space is not assigned.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let is_special = match ip.octets() {
        // "This network"; carrier-grade NAT; protocol assignments; benchmarks; reserved and broadcast.
        [0 | 240..=255, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18 | 19, ..] => true,
        _ => false,
    };
    !(is_special
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation())
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // NAT64: in networks without IPv4, names without an IPv6 address get this prefix with the IPv4 address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        // Protocols and tunnels; documentation; 6to4; documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_world_are_public() {
        for ip in [
            "1.1.1.1",
            "52.1.2.3",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn addresses_of_the_house_and_special_ones_are_not() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:1.1.1.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    struct FakeResolver(Vec<&'static str>);

    impl Resolve for FakeResolver {
        fn resolve(&self, _: Name) -> Resolving {
            let addresses: Vec<SocketAddr> =
                self.0.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
            Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
        }
    }

    async fn looked_up(name: &str, addresses: &[&'static str]) -> Option<Vec<String>> {
        let guard = Guard::new(Arc::new(FakeResolver(addresses.to_vec())));
        match guard.resolve(name.parse().unwrap()).await {
            Ok(addresses) => Some(addresses.map(|address| address.ip().to_string()).collect()),
            Err(error) => {
                assert!(error.downcast_ref::<NoPublicAddress>().is_some());
                None
            }
        }
    }

    #[tokio::test]
    async fn only_public_addresses_of_a_name_are_connected_to() {
        let both = ["10.0.0.1", "1.1.1.1", "::1"];
        assert_eq!(looked_up("hooks.slack.com", &both).await, Some(vec!["1.1.1.1".to_owned()]));
        assert_eq!(looked_up("hooks.slack.com", &["10.0.0.1", "::1"]).await, None);
        assert_eq!(looked_up("hooks.slack.com", &[]).await, Some(vec![]), "the name does not resolve");
    }

    #[tokio::test]
    async fn localhost_leads_to_this_machine_only() {
        let addresses = ["1.1.1.1", "::1", "10.0.0.1", "127.0.0.1"];
        let local = vec!["::1".to_owned(), "127.0.0.1".to_owned()];
        assert_eq!(looked_up("localhost", &addresses).await, Some(local));
        assert_eq!(looked_up("localhost", &["1.1.1.1"]).await, None);
        assert_eq!(looked_up("localhost.example", &["127.0.0.1"]).await, None);
    }
}
