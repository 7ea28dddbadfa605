#![doc = include_str!("../README.md")]

mod exporting;

pub use exporting::Http;
