//! The defaults that guides repeat, beside those of `rows.rs` that the documentation of items repeats.

use super::rows::Source::{self, Const, Field};

const POOL: &str = "pool/config.rs";
const HOST_DEFAULT: &str = "\nlimits! {";
const PINGS: &str = "connect/http2/frames.rs";
const RETURN: &str = "client/body/return_guard/mod.rs";
const DEADLINES: &str = "client/policy/deadlines.rs";
const UPLOADS: &str = "guide/uploads_and_streams.md";
const GRPC: &str = "guide/grpc.md";
const BALANCERS: &str = "guide/load_balancers.md";
const SHUTDOWN: &str = "guide/shutdown.md";
const DNS: &str = "guide/dns_in_containers.md";

/// Each default with the lines of guides that repeat it.
pub(super) const REPEATS: &[Source] = &[
    Const(DEADLINES, "SILENCE_TIMEOUT", &[(UPLOADS, "| the body is being sent"), (UPLOADS, "| the last byte is sent")]),
    Const("client/body/upload.rs", "CONTINUE_TIMEOUT", &[(UPLOADS, "| a 100 (Continue)")]),
    Const(RETURN, "UPLOAD_TIMEOUT", &[(UPLOADS, "| the response is over"), (SHUTDOWN, "After the end of a response")]),
    Const(RETURN, "UPLOAD_IDLE_TIMEOUT", &[(UPLOADS, "| the response is over"), (SHUTDOWN, "for 5 s in which")]),
    Const(RETURN, "READY_TIMEOUT", &[(UPLOADS, "HTTP/1.1 connection is kept only")]),
    Const("transport/tcp.rs", "KEEPALIVE", &[(UPLOADS, "* **TCP keepalive**")]),
    Const(PINGS, "SILENCE", &[(UPLOADS, "* **HTTP/2 pings**"), (GRPC, "By default the client stays")]),
    Const(PINGS, "MAX_PINGS", &[(GRPC, "By default the client stays")]),
    Const(PINGS, "PING_TIMEOUT", &[(GRPC, "By default the client stays")]),
    Field(POOL, HOST_DEFAULT, "max_streams", &[(GRPC, "until it is full")]),
    Field(
        POOL,
        HOST_DEFAULT,
        "max_http2_connections",
        &[(GRPC, "until it is full"), (BALANCERS, "A limit is for one scheme")],
    ),
    Field(POOL, HOST_DEFAULT, "idle_timeout", &[(BALANCERS, "By default it closes")]),
    Field(POOL, HOST_DEFAULT, "lifetime", &[(BALANCERS, "`lifetime`, ")]),
    Const("pool/state/memory/mod.rs", "LONGEST_PAUSE", &[(GRPC, "the host is not dialled for")]),
    Field(
        "dns/cache/state/values.rs",
        "impl Default for Config",
        "negative_ceiling",
        &[(DNS, "| a name without IPv6 addresses")],
    ),
];
