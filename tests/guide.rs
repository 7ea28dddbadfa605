//! Runs the examples of guides that need more than speeddial's own dependencies.

#![cfg(doctest)]

#[doc = include_str!("../src/guide/in_production.md")]
pub struct InProduction;

#[doc = include_str!("../src/guide/testing_with_sockets.md")]
pub struct TestingWithSockets;

#[doc = include_str!("../src/guide/why_was_it_slow.md")]
pub struct WhyWasItSlow;
