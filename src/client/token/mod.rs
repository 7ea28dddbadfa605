//! Bearer tokens that are refreshed for all calls of a client.
//!
//! | file | what it holds |
//! |---|---|
//! | `authorization.rs` | the token of one call |
//! | `source.rs` | [`TokenSource`], as users make it |
//! | `driver.rs` | the shared token, and the tasks that refresh it |
//! | `state.rs` | when it is refreshed |
//! | `bearer.rs` | [`Token`] |

mod authorization;
mod bearer;
mod driver;
mod source;
mod state;

pub(super) use authorization::Authorization;
pub use bearer::Token;
pub use source::TokenSource;
