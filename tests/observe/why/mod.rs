//! `Timings::why`: each cause is named where it took the time, and no cause is named that did not. Each test expects all the
//! causes of its call, the main one first.

mod common;
mod connecting;
mod dns;
mod earlier_requests;
mod errors;
mod exchanges;
mod new_connections;
mod own_code;
mod queue;
#[cfg(target_os = "linux")]
mod quota;
mod runtime_busy;
