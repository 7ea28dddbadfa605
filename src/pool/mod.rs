mod config;
mod state;
pub use config::*;
