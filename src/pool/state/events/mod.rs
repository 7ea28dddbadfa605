//! The events that the [protocol](super) of the pool lists, in a file for each thing that they concern.

mod checkout;
mod connections;
mod dials;
mod hosts;
