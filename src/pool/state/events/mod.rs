//! The events of the pool: what each of them changes, in the order of the [protocol](super).

mod checkout;
mod connections;
mod dials;
mod hosts;
mod renewal;
mod requests;
