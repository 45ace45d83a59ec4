//! The real binary from outside. One test program, so that it is linked once.

mod faults;
mod interface;
mod support;
