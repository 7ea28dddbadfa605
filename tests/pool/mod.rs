//! Connections: their limits, their order, and peers that close them.

mod connections;
