//! What the suites have in common: the values of their factors, numbers from the environment, and the end of a client's calls.

use std::time::Duration;

use speeddial::Client;
use tokio::time::timeout;

/// Declares an enum with a list of its values.
macro_rules! factor {
    ($(#[$doc:meta])* $name:ident { $($value:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($value),+ }

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$value),+];
        }
    };
}

pub(crate) use factor;

/// Returns a number that the environment gives.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Returns true if a row is to be tried: `SHAPE` names one alone.
pub(crate) fn is_chosen(row: &impl std::fmt::Display) -> bool {
    std::env::var("SHAPE").ok().is_none_or(|only| only == row.to_string())
}

/// Waits until nothing of a client's calls is left.
///
/// # Errors
/// Something is left after a minute.
pub(crate) async fn settles(client: &Client) -> Result<(), String> {
    let is_quiet = || {
        let stats = client.pool_stats();
        stats.in_use + stats.leased + stats.waiting + stats.dialling + stats.closing == 0
    };
    let quiet = async {
        while !is_quiet() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(support::LONG, quiet).await.map_err(|_| format!("something is left: {:?}", client.pool_stats()))
}
