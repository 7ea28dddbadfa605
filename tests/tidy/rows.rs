//! The rows of the guide's table of defaults, and where the code has their figures.

/// A place in the documentation that repeats a default: a file below `src`, and a line of the item or of the guide.
type Place = (&'static str, &'static str);

/// The source of figures in a row.
pub(super) enum Source {
    /// A constant: its file, its name, and the documentation that repeats it.
    Const(&'static str, &'static str, &'static [Place]),
    /// A field: its file, the text after which it is set, its name, and the documentation that repeats it.
    Field(&'static str, &'static str, &'static str, &'static [Place]),
    /// Figures that the code has in another form: the figures, the file, and the code.
    Text(&'static str, &'static str, &'static str),
}
use Source::{Const, Field, Text};

const BUILDER: &str = "client/builder.rs";
const POOL: &str = "pool/config.rs";
const CACHE: &str = "dns/cache/builder.rs";
const HICKORY: &str = "dns/hickory/mod.rs";
const RESOLVER: Place = (HICKORY, "pub struct HickoryResolver");
const CACHED: Place = ("dns/cache/mod.rs", "pub struct CachedResolver {");
const POOL_DEFAULT: &str = "impl Default for PoolConfig";
const HOST_DEFAULT: &str = "impl Default for Limits";
const CONFIG_DEFAULT: &str = "impl Default for Config";
const RETRY: &str = "client/retry_policy.rs";
const RETRY_NEW: &str = "Self {\n            max_attempts";
const TUNING: &str = "guide/tuning_the_pool.md";
const SECURITY: &str = "../SECURITY.md";
const NEW_POLICY: Place = (RETRY, "pub fn new() -> Self");

/// Each row of the table by its setting. A row without sources has no figures.
pub(super) const ROWS: &[(&str, &[Source])] = &[
    ("resolver", &[Const("dns/hickory/watched_file.rs", "CHECK_INTERVAL", &[(HICKORY, "pub fn system()")])]),
    (
        "time of one try of a server",
        &[Const("dns/hickory/limits.rs", "DEFAULT_TRY_TIMEOUT", &[(HICKORY, "pub fn with_try_timeout("), RESOLVER])],
    ),
    (
        "tries of each server",
        &[Const("dns/hickory/limits.rs", "DEFAULT_TRIES", &[(HICKORY, "pub fn with_tries("), RESOLVER])],
    ),
    (
        "time of a whole lookup",
        &[Const(
            "dns/hickory/limits.rs",
            "DEFAULT_TOTAL_TIMEOUT",
            &[(HICKORY, "pub fn with_total_timeout("), RESOLVER, (CACHE, "pub fn query_timeout(")],
        )],
    ),
    ("next server, or TCP, while UDP is silent", &[Const("dns/hickory/tries.rs", "HEAD_START", &[RESOLVER])]),
    (
        "lookups in flight",
        &[
            Const(
                "dns/hickory/limits.rs",
                "DEFAULT_MAX_IN_FLIGHT",
                &[(HICKORY, "pub fn with_max_in_flight("), (SECURITY, "| DNS lookups that ask at once")],
            ),
            Const("dns/hickory/search.rs", "SLOW_AFTER", &[(HICKORY, "pub fn with_max_in_flight(")]),
        ],
    ),
    ("time of a query below the cache", &[Const(CACHE, "QUERY_TIMEOUT", &[(CACHE, "pub fn query_timeout(")])]),
    (
        "full name that a search of `resolv.conf`'s list has found",
        &[Const(
            "dns/hickory/chosen_candidates.rs",
            "MAX_AGE",
            &[RESOLVER, ("guide/dns_in_containers.md", "is found within")],
        )],
    ),
    (
        "names in the cache",
        &[Field(
            "dns/cache/state/config.rs",
            CONFIG_DEFAULT,
            "max_names",
            &[(CACHE, "pub fn max_names("), (SECURITY, "| DNS names kept")],
        )],
    ),
    (
        "time an answer is kept",
        &[
            Field("dns/cache/state/config.rs", CONFIG_DEFAULT, "ttl_ceiling", &[(CACHE, "pub fn ttl_ceiling(")]),
            Text("", "dns/cache/state/config.rs", "ttl_floor: Duration::ZERO"),
        ],
    ),
    (
        "time a \"does not exist\" is kept",
        &[
            Field(
                "dns/cache/state/config.rs",
                CONFIG_DEFAULT,
                "negative_ceiling",
                &[(CACHE, "pub fn negative_ceiling(")],
            ),
            Const("dns/hickory/candidate_memory.rs", "MAX_NEGATIVE_TTL", &[RESOLVER]),
            Const("dns/cache/state/config.rs", "DEFAULT_NEGATIVE_TTL", &[]),
            Const("dns/hickory/candidate_memory.rs", "DEFAULT_TTL", &[]),
        ],
    ),
    (
        "refresh of a name in use",
        &[Text("90 95", "dns/cache/state/mod.rs", "ttl.mul_f64(0.05 + 0.05 * self.jitter.f64())")],
    ),
    (
        "stale answers",
        &[
            Field("dns/cache/state/config.rs", CONFIG_DEFAULT, "max_stale", &[(CACHE, "pub fn stale(")]),
            Const("dns/cache/lookup.rs", "STALE_ANSWER_TIMEOUT", &[(CACHE, "pub fn stale(")]),
        ],
    ),
    (
        "pause after a failure of the servers",
        &[
            Const("dns/cache/state/family_state.rs", "FIRST_BACKOFF", &[CACHED]),
            Const("dns/cache/state/family_state.rs", "LONGEST_BACKOFF", &[CACHED]),
        ],
    ),
    (
        "pause after a failure of this machine",
        &[Const(
            "dns/cache/state/family_state.rs",
            "LOCAL_BACKOFF",
            &[CACHED, ("dns/error.rs", "pub fn is_local(self)")],
        )],
    ),
    (
        "`connect_timeout`",
        &[Const("client/connect_settings.rs", "CONNECT_TIMEOUT", &[(BUILDER, "pub fn connect_timeout(")])],
    ),
    ("families", &[]),
    (
        "addresses of a name",
        &[
            Field(
                "race/schedule.rs",
                CONFIG_DEFAULT,
                "max_addresses",
                &[("connect/addresses.rs", "pub enum Addresses"), (SECURITY, "| DNS names kept")],
            ),
            Const("race/address_order.rs", "MAX_SORTED", &[("connect/addresses.rs", "pub enum Addresses")]),
        ],
    ),
    (
        "resolution delay: IPv4 waits for the IPv6 answer",
        &[
            Field("race/schedule.rs", CONFIG_DEFAULT, "resolution_delay", &[]),
            Const("dns/cache/mod.rs", "RESOLUTION_DELAY", &[("dns/cache/mod.rs", "pub async fn lookup_both(")]),
        ],
    ),
    (
        "attempt delay: time until the next address is dialled",
        &[
            Field("race/schedule.rs", CONFIG_DEFAULT, "attempt_delay", &[(BUILDER, "pub fn connect_timeout(")]),
            Const("race/schedule.rs", "MIN_ATTEMPT_DELAY", &[(BUILDER, "pub fn connect_timeout(")]),
        ],
    ),
    (
        "attempts at the same time",
        &[
            Field("race/schedule.rs", CONFIG_DEFAULT, "max_in_flight", &[]),
            Const("race/schedule.rs", "MIN_ATTEMPT_TIME", &[]),
        ],
    ),
    (
        "an address that failed is tried last",
        &[Const("race/scoreboard.rs", "FIRST_PENALTY", &[]), Const("race/scoreboard.rs", "MAX_PENALTY", &[])],
    ),
    ("an address that is slow", &[Const("race/scoreboard.rs", "SLOW", &[])]),
    ("addresses allowed", &[]),
    ("`nodelay`", &[Text("", "transport/tcp.rs", "nodelay: true")]),
    (
        "`keepalive`",
        &[
            Const(
                "transport/tcp.rs",
                "KEEPALIVE",
                &[("transport/tcp.rs", "pub fn keepalive("), ("transport/tcp.rs", "pub struct TcpTransport")],
            ),
            Const("transport/late_options.rs", "KEEPALIVE_PROBES", &[("transport/tcp.rs", "pub fn keepalive(")]),
        ],
    ),
    (
        "`user_timeout` (Linux)",
        &[Const(
            "transport/tcp.rs",
            "USER_TIMEOUT",
            &[("transport/tcp.rs", "pub fn user_timeout("), ("transport/tcp.rs", "pub struct TcpTransport")],
        )],
    ),
    (
        "send and receive buffers",
        &[Text("", "transport/tcp.rs", "send_buffer: None"), Text("", "transport/tcp.rs", "receive_buffer: None")],
    ),
    (
        "unsent data in the kernel (Linux)",
        &[
            Const("transport/late_options.rs", "MAX_UNSENT", &[]),
            Const("transport/late_options.rs", "UNLIMITED_BYTES", &[]),
        ],
    ),
    ("TCP Fast Open (Linux)", &[Text("", "transport/tcp.rs", "fast_open: false")]),
    ("trusted certificates", &[Text("", "tls/config.rs", "#[default]\n    Platform")]),
    ("lowest version", &[Text("", "tls/config.rs", "#[default]\n    Tls12")]),
    ("`tls_timeout`", &[Const("client/connect_settings.rs", "TLS_TIMEOUT", &[(BUILDER, "pub fn tls_timeout(")])]),
    (
        "sessions kept for resumption",
        &[Const(
            "tls/config.rs",
            "SESSION_HOSTS",
            &[("tls/config.rs", "pub fn session_cache("), ("tls/config.rs", "pub struct TlsConfig")],
        )],
    ),
    ("`prepare_in_background`", &[Text("", "tls/config.rs", "prepared_late: bool")]),
    ("proxies", &[Text("", "client/connect_settings.rs", "proxies: Proxies::from_environment()")]),
    ("this machine (`localhost`, loopback addresses)", &[]),
    ("`HTTP_PROXY` in a CGI process", &[]),
    (
        "`max_connections`",
        &[
            Const(
                POOL,
                "NOFILE_PERCENT",
                &[(POOL, "pub fn max_connections("), (TUNING, "uses at most"), (SECURITY, "| connections")],
            ),
            Const(POOL, "MOST_CONNECTIONS", &[(POOL, "pub fn max_connections("), (SECURITY, "| connections")]),
        ],
    ),
    ("`max_connections_per_host`", &[Text("", POOL, "max_connections: usize::MAX")]),
    ("`max_idle`", &[Field(POOL, POOL_DEFAULT, "max_idle", &[(POOL, "pub fn max_idle(")])]),
    ("`max_idle_per_host`", &[Text("", POOL, "max_idle: usize::MAX")]),
    (
        "`idle_timeout`",
        &[
            Field(
                POOL,
                HOST_DEFAULT,
                "idle_timeout",
                &[(POOL, "pub fn idle_timeout(mut"), (TUNING, "keeps idle ones for")],
            ),
            Const("client/keep_alive.rs", "MARGIN", &[]),
        ],
    ),
    (
        "`lifetime`",
        &[Field(POOL, HOST_DEFAULT, "lifetime", &[(POOL, "pub fn lifetime(mut"), (TUNING, "Lower `lifetime`")])],
    ),
    ("`max_requests_per_connection`", &[Text("", POOL, "max_requests: u64::MAX")]),
    (
        "`max_waiting`",
        &[Field(
            POOL,
            POOL_DEFAULT,
            "max_waiting",
            &[(POOL, "pub fn max_waiting(self"), (SECURITY, "| requests that wait")],
        )],
    ),
    ("`max_waiting_per_host`", &[Text("", POOL, "max_waiting: usize::MAX")]),
    ("`wait_timeout`", &[Field(POOL, HOST_DEFAULT, "wait_timeout", &[(POOL, "pub fn wait_timeout(mut")])]),
    (
        "`max_dials_per_host`",
        &[
            Field(POOL, HOST_DEFAULT, "max_dials", &[(POOL, "pub fn max_dials_per_host(")]),
            Const("pool/state/dial_window.rs", "INITIAL_SIZE", &[(POOL, "pub fn max_dials_per_host(")]),
            Const("pool/state/dial_window.rs", "MIN_SIZE", &[(POOL, "pub fn max_dials_per_host(")]),
            Field("pool/state/host.rs", "let dials = HostDials", "probes", &[(POOL, "pub fn max_dials_per_host(")]),
        ],
    ),
    ("`follow_dns`", &[Text("", POOL, "#[default]\n    AfterTwoTtls")]),
    (
        "no descriptor or local port left",
        &[
            Const("pool/state/descriptors.rs", "FIRST_DELAY", &[]),
            Const("pool/state/descriptors.rs", "LONGEST_DELAY", &[]),
        ],
    ),
    ("versions", &[Text("", "client/connect_settings.rs", "versions: Versions::Any")]),
    (
        "`max_streams_per_connection`",
        &[Field(
            POOL,
            HOST_DEFAULT,
            "max_streams",
            &[(POOL, "pub fn max_streams_per_connection(mut"), (TUNING, "counts streams")],
        )],
    ),
    (
        "`max_http2_connections_per_host`",
        &[Field(
            POOL,
            HOST_DEFAULT,
            "max_http2_connections",
            &[(POOL, "pub fn max_http2_connections_per_host("), (TUNING, "counts streams")],
        )],
    ),
    ("receive window of a stream", &[Const("connect/handshake.rs", "STREAM_WINDOW", &[(SECURITY, "| unread data")])]),
    (
        "receive window of a connection",
        &[Const("connect/handshake.rs", "CONNECTION_WINDOW", &[(SECURITY, "| unread data")])],
    ),
    (
        "pings while a request is under way",
        &[
            Const("connect/h2_pings.rs", "SILENCE", &[(BUILDER, "pub fn http2_keep_alive_interval(")]),
            Const("connect/h2_pings.rs", "MAX_PINGS", &[(BUILDER, "pub fn http2_keep_alive_interval(")]),
            Const("connect/h2_pings.rs", "PING_TIMEOUT", &[(BUILDER, "pub fn http2_keep_alive_interval(")]),
        ],
    ),
    ("`http2_keep_alive_interval`", &[Text("", "connect/h2_pings.rs", "Self { interval: None")]),
    (
        "`http2_keep_alive_timeout`",
        &[Field(
            "connect/h2_pings.rs",
            "impl Default for PingConfig",
            "timeout",
            &[(BUILDER, "pub fn http2_keep_alive_timeout(")],
        )],
    ),
    ("`http2_keep_alive_while_idle`", &[Text("", "connect/h2_pings.rs", "while_idle: false }")]),
    (
        "a server that asks for calm (ENHANCE_YOUR_CALM)",
        &[Const("pool/state/conduct.rs", "FIRST_PAUSE", &[]), Const("pool/state/conduct.rs", "LONGEST_PAUSE", &[])],
    ),
    ("`timeout`", &[Text("", BUILDER, "body_idle: Some(SILENCE_TIMEOUT),\n                    ..Timeouts::default()")]),
    ("`queue_timeout`", &[]),
    (
        "`headers_timeout`",
        &[Const(BUILDER, "SILENCE_TIMEOUT", &[(BUILDER, "pub fn headers_timeout("), (SECURITY, "| silence before")])],
    ),
    ("`body_idle_timeout`", &[Const(BUILDER, "SILENCE_TIMEOUT", &[(BUILDER, "pub fn body_idle_timeout(")])]),
    (
        "`Expect: 100-continue`",
        &[Const(
            "client/body/upload.rs",
            "CONTINUE_TIMEOUT",
            &[("client/request_builder.rs", "pub fn expect_continue(")],
        )],
    ),
    ("headers", &[]),
    (
        "number of request headers",
        &[Const("client/request.rs", "MAX_HEADERS", &[("client/request_builder.rs", "pub fn header<")])],
    ),
    (
        "length of a URL",
        &[Const("client/request.rs", "MAX_URL_LENGTH", &[("client/request.rs", "pub fn new(method: Method")])],
    ),
    ("`max_response_headers`", &[Text("100", "connect/handshake.rs", "hyper's own limit of 100")]),
    (
        "length of a response's headers",
        &[Const(
            "connect/handshake.rs",
            "MAX_HEAD",
            &[(BUILDER, "pub fn max_response_headers("), (SECURITY, "| head of a response")],
        )],
    ),
    (
        "interim responses (1xx) to a request",
        &[Const("connect/interim.rs", "MAX_INTERIM", &[(SECURITY, "| interim responses")])],
    ),
    ("decompression", &[Text("", "client/body/decompression.rs", "Self { is_enabled: true")]),
    (
        "`max_bytes` of a decompressed body",
        &[Field(
            "client/body/decompression.rs",
            "Self { is_enabled: true",
            "max_bytes",
            &[
                ("client/body/decompression.rs", "pub struct Decompression"),
                ("client/body/decompression.rs", "pub fn max_bytes("),
                (SECURITY, "| decompressed body"),
            ],
        )],
    ),
    (
        "`max_ratio` of decompression",
        &[
            Field(
                "client/body/decompression.rs",
                "Self { is_enabled: true",
                "max_ratio",
                &[
                    ("client/body/decompression.rs", "pub struct Decompression"),
                    ("client/body/decompression.rs", "pub fn max_ratio("),
                    (SECURITY, "| decompressed body"),
                ],
            ),
            Const(
                "client/body/decode.rs",
                "ALWAYS_ALLOWED",
                &[
                    ("client/body/decompression.rs", "pub struct Decompression"),
                    ("client/body/decompression.rs", "pub fn max_ratio("),
                ],
            ),
        ],
    ),
    ("codings of one body", &[Const("client/body/decode.rs", "MAX_CODINGS", &[(SECURITY, "| decompressed body")])]),
    ("length of a body", &[]),
    (
        "rest of a body that is dropped",
        &[
            Const("client/body/return_guard.rs", "DRAIN_TIMEOUT", &[("client/response.rs", "pub struct Response {")]),
            Const("client/body/return_guard.rs", "MAX_DRAINED", &[("client/response.rs", "pub struct Response {")]),
        ],
    ),
    ("connection after a response", &[Const("client/body/return_guard.rs", "READY_TIMEOUT", &[])]),
    (
        "rest of a request whose response is over",
        &[
            Const("client/body/return_guard.rs", "UPLOAD_TIMEOUT", &[]),
            Const("client/body/return_guard.rs", "UPLOAD_IDLE_TIMEOUT", &[]),
            Const("client/body/return_guard.rs", "READY_TIMEOUT", &[]),
        ],
    ),
    ("answer to a request that could not be sent whole", &[Const("connect/io.rs", "LAST_READ_TIMEOUT", &[])]),
    (
        "redirects",
        &[Const(
            "client/redirect_policy.rs",
            "DEFAULT_LIMIT",
            &[
                ("client/redirect_policy.rs", "pub struct RedirectPolicy"),
                ("client/redirect_policy.rs", "pub fn same_origin("),
                (BUILDER, "pub fn redirect("),
                (SECURITY, "| redirects"),
            ],
        )],
    ),
    (
        "redirects with a policy of your own",
        &[Const("client/redirect_policy.rs", "CUSTOM_LIMIT", &[("client/redirect_policy.rs", "pub fn custom(")])],
    ),
    ("secrets", &[]),
    (
        "resends of a request that the server did not process",
        &[
            Const(
                "client/safe_to_resend.rs",
                "MAX_ATTEMPTS",
                &[("client/handle.rs", "pub fn execute("), (SECURITY, "| sends of one request")],
            ),
            Const("client/safe_to_resend.rs", "MAX_POSSIBLY_PROCESSED", &[("client/handle.rs", "pub fn execute(")]),
        ],
    ),
    (
        "wait before a resend",
        &[
            Const("client/safe_to_resend.rs", "FIRST_BACKOFF", &[]),
            Text("75", "client/safe_to_resend.rs", "longest / 2 + (longest / 2).mul_f64(random)"),
        ],
    ),
    (
        "resends to one origin",
        &[
            Const("pool/state/conduct.rs", "MOST_RESENDS", &[]),
            Const("pool/state/conduct.rs", "RESENDS_PER_SECOND", &[]),
        ],
    ),
    ("retries by policy", &[Text("", BUILDER, "retry: None")]),
    (
        "`RetryPolicy::new()`",
        &[
            Field(RETRY, "Self {", "max_attempts", &[NEW_POLICY, (RETRY, "pub fn attempts(")]),
            Field(RETRY, RETRY_NEW, "first_backoff", &[NEW_POLICY, (RETRY, "pub fn backoff(")]),
            Field(RETRY, RETRY_NEW, "max_backoff", &[NEW_POLICY, (RETRY, "pub fn backoff(")]),
            Text("429", RETRY, "StatusCode::TOO_MANY_REQUESTS"),
            Text("502", RETRY, "StatusCode::BAD_GATEWAY"),
            Text("503", RETRY, "StatusCode::SERVICE_UNAVAILABLE"),
            Text("504", RETRY, "StatusCode::GATEWAY_TIMEOUT"),
            Field(RETRY, RETRY_NEW, "max_retry_after", &[]),
        ],
    ),
    (
        "its budget",
        &[
            Text("10 s", RETRY, "per_second: 0.1"),
            Text("", RETRY, "per_call: 0.2"),
            Const(RETRY, "MIN_FIRST_SAVED", &[]),
            Const(RETRY, "MAX_SAVED", &[(RETRY, "pub fn budget(")]),
        ],
    ),
];
