//! The state of a pool: its parts, each a struct with methods over its own data. A core.

use std::collections::VecDeque;

use super::hosts::connections::Connections;
use super::hosts::host::Hosts;
use super::hosts::queue::Waiters;
use super::hosts::slots::Slots;
use super::hosts::warm_hosts::WarmHosts;
use super::memory::Memory;
use super::moved_addresses::MovedAddresses;
use super::timers::Timers;
use super::values::types::{ConnId, Effect, PoolTypes, Profile};
use crate::pool::config::PoolConfig;

/// The state of a pool.
pub(crate) struct State<T: PoolTypes> {
    pub(super) profile: ProfileOf<T::Key>,
    /// Tells whether a dial waits for DNS, or has addresses left that it has not tried.
    pub(super) is_on_its_way: Box<dyn Fn(ConnId) -> bool + Send>,
    pub(super) hosts: Hosts<T::Key>,
    pub(super) conns: Connections<T>,
    pub(super) waiters: Waiters<T>,
    pub(super) slots: Slots,
    pub(super) timers: Timers,
    pub(super) effects: VecDeque<Effect<T>>,
    /// The number of the last connection or request.
    pub(super) serial: u64,
    pub(super) moved_addresses: MovedAddresses,
    pub(super) memory: Memory<T::Key>,
    pub(super) warm_hosts: WarmHosts,
    /// True once a drain has begun.
    pub(super) is_draining: bool,
    /// The number of calls in progress that have no connection at the moment but will need one.
    pub(super) drain_holds: usize,
}

/// A function that returns what is known of a host beforehand.
pub(super) type ProfileOf<K> = Box<dyn Fn(&K) -> Profile + Send>;

impl<T: PoolTypes> State<T> {
    /// Creates a pool without connections. `profile` returns what is known of a host beforehand.
    pub(crate) fn new(config: &PoolConfig, profile: impl Fn(&T::Key) -> Profile + Send + 'static) -> Self {
        Self {
            profile: Box::new(profile),
            is_on_its_way: Box::new(|_| false),
            hosts: Hosts::default(),
            conns: Connections::new(config.max_idle),
            waiters: Waiters::new(config.max_waiting),
            slots: Slots::new(config.max_connections),
            timers: Timers::default(),
            effects: VecDeque::new(),
            serial: 0,
            moved_addresses: MovedAddresses::new(config.follow_dns),
            memory: Memory::default(),
            warm_hosts: WarmHosts::new(0),
            is_draining: false,
            drain_holds: 0,
        }
    }

    /// Sets the seed of the jitter that spreads the pauses of many clients, and the function that tells
    /// whether a dial waits for DNS or has addresses left.
    pub(crate) fn with(self, seed: u64, is_on_its_way: impl Fn(ConnId) -> bool + Send + 'static) -> Self {
        Self { warm_hosts: WarmHosts::new(seed), is_on_its_way: Box::new(is_on_its_way), ..self }
    }
}
