//! DNS servers that break the rules, and forged answers: a test for each row of the hazards of DNS.

mod common;
mod failures;
mod forgeries;
mod names;
mod records;
