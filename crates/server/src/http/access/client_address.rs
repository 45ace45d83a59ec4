//! The address of a client: the peer's, or what trusted proxies say of it.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::HeaderMap;
use ipnet::IpNet;

/// The networks whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(pub Vec<IpNet>);

/// The address of a connection's other end. The server adds it to each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

impl TrustedProxies {
    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The nearest address that is not one of our proxies. Each proxy appends the address that it saw, so the list is
    /// read from its end, and what stands before an untrusted address may be invented.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let forwarded: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .flat_map(|value| value.to_str().unwrap_or("invalid").split(','))
            .collect();
        for hop in forwarded.into_iter().rev() {
            if !self.trusts(client) {
                break;
            }
            let Some(address) = parse(hop.trim()) else { break };
            client = address;
        }
        client
    }
}

/// An address, with or without a port.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(text);
    let address =
        bare.parse().ok().or_else(|| text.parse().ok().map(|with_port: std::net::SocketAddr| with_port.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// The unit that limits count: an IPv4 address, or a network of IPv6, of which one client has 2^64 addresses.
pub fn limited_unit(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let proxies = TrustedProxies(vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(client("::ffff:10.0.0.1", &["203.0.113.9:5555"]), "203.0.113.9");
        assert_eq!(client("::1", &["[2001:db8::1]:443"]), "2001:db8::1");
    }

    #[test]
    fn what_a_client_invents_is_not_believed() {
        assert_eq!(client("10.0.0.1", &["1.1.1.1, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "203.0.113.9, 10.0.0.2"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, nonsense"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, \u{fc}"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["10.0.0.3"]), "10.0.0.3", "all of them are proxies");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let unit = |text: &str| limited_unit(text.parse().unwrap()).to_string();
        assert_eq!(unit("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(unit("203.0.113.9"), "203.0.113.9");
    }
}
