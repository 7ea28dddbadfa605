//! Compiles the examples of the guide to other crates, which need those crates.

#![cfg(doctest)]

#[doc = include_str!("../../src/guide/under_other_crates.md")]
pub struct UnderOtherCrates;
