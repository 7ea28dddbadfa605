//! Timings as text.
//!
//! | file | what it does |
//! |---|---|
//! | `waterfall.rs` | the phases, one line each |
//! | `one_line.rs` | all of a call in a line |
//! | `curl_figures.rs` | the figures that curl has |
//! | `text.rs` | times and sizes |

pub(super) mod curl_figures;
pub(super) mod one_line;
pub(super) mod text;
pub(super) mod waterfall;
