//! The client under oauth2 and under crates that take a tower service, and the DNS cache under other clients.

mod resolvers;
mod tokens;
mod watches;
