//! Timings as text.
//!
//! | file | what it does |
//! |---|---|
//! | `rows.rs` | the rows of a waterfall, which its text and its pictures share |
//! | `waterfall.rs` | the same as text |
//! | `svg.rs` | the same as pictures, of one call and of several |
//! | `one_line.rs` | all of a call in a line |
//! | `curl_figures.rs` | the figures that curl has |

pub(super) mod curl_figures;
pub(super) mod one_line;
pub(super) mod rows;
pub(super) mod svg;
pub(super) mod waterfall;
