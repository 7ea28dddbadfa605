#![doc = include_str!("../README.md")]

mod exporting;
mod measurements;
mod spans;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use exporting::Http;
pub use measurements::{Metrics, WatchedClients};
pub use spans::{PhaseDetail, Spans};

// Each step leaves a sound state behind, so a poisoned lock still guards one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
