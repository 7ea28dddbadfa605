//! Guides for common tasks.

#[doc = include_str!("moving_from_reqwest.md")]
pub mod moving_from_reqwest {}

#[doc = include_str!("defaults.md")]
pub mod defaults {}

#[doc = include_str!("timeouts.md")]
pub mod timeouts {}

#[doc = include_str!("tuning_the_pool.md")]
pub mod tuning_the_pool {}

#[doc = include_str!("dns_in_containers.md")]
pub mod dns_in_containers {}

#[doc = include_str!("in_production.md")]
pub mod in_production {}

#[doc = include_str!("testing_your_service.md")]
pub mod testing_your_service {}
