//! Name resolution by the operating system, with an error type that callers can recognise.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The caller fills in the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|_| Unresolved)?;
            let addresses: Vec<SocketAddr> = found.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The name does not resolve, or the resolver did not answer.
#[derive(Debug)]
pub struct Unresolved;

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name does not resolve")
    }
}

impl Error for Unresolved {}

/// Whether an error of type `T` is among the causes.
pub fn is_caused_by<T: Error + 'static>(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |cause| (**cause).source());
    causes.any(<dyn Error>::is::<T>)
}
