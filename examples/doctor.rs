//! Report.

fn main() {}
