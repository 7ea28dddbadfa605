//! The rows of the guide's table of defaults from the pool to retries.

use super::rows::Source::{Const, Field, Text};
use super::rows::{Place, Row};

const BUILDER: &str = "client/client_builder/mod.rs";
const DEADLINES: &str = "client/policy/deadlines.rs";
const HTTP_KNOBS: &str = "client/client_builder/http_versions.rs";
const PING_CONFIG: &str = "derive(Debug, Clone, Copy, Default)]\npub(crate) struct PingConfig";
const POOL: &str = "pool/config.rs";
const POOL_DEFAULT: &str = "impl Default for PoolConfig";
const EJECTION: &str = "pool/config.rs";
const EJECTION_DEFAULT: &str = "impl Default for Ejection";
const BALANCING: &str = "guide/balancing_grpc.md";
const HOST_DEFAULT: &str = "\nlimits! {";
const MIN_IDLE: &str = "pub fn min_idle_per_host(mut";
const WARM: &str = "pool/state/warm/mod.rs";
const KEPT_FOR: &str = "KEPT_FOR: Duration = Duration::from_secs(60 * 60)";
const JAR: Place = ("cookie/mod.rs", "pub struct Jar(");
const RETRY: &str = "client/policy/retry.rs";
const RETRY_NEW: &str = "Self {\n            max_attempts";
const TOKEN: &str = "client/token/state.rs";
const TOKEN_SOURCE: Place = ("client/token/mod.rs", "pub struct TokenSource");
const HEDGE: &str = "client/policy/hedge.rs";
const HEDGE_NEW: &str = "Self { after: None, quantile: 0.95";
const TUNING: &str = "guide/tuning_the_pool.md";
const RECONNECTION: &str = "client/sse/reconnection.rs";
const PARSER: &str = "client/sse/parser.rs";
const EVENT_SOURCE: &str = "client/sse/event_source.rs";
const SOURCE: Place = (EVENT_SOURCE, "pub struct EventSource");
const SEND_ALL: &str = "client/request_builder/send_all.rs";
const EXPORTERS: &str = "../companions/opentelemetry/src/exporting.rs";
const OAUTH2: &str = "../companions/oauth2/src/lib.rs";
const UPGRADED: &str = "client/response/upgraded.rs";
const UPGRADED_STREAM: Place = (UPGRADED, "pub struct Upgraded {");
const SECURITY: &str = "../SECURITY.md";
const STATUS_BODY: Place = ("client/response/mod.rs", "pub async fn error_for_status_with_body(");
const NEW_POLICY: Place = (RETRY, "pub fn new() -> Self");
const NEW_HEDGES: Place = (HEDGE, "pub fn new() -> Self");
const HEDGES: Place = (HEDGE, "pub struct HedgePolicy");

/// The rows from the pool to retries.
pub(super) const ROWS: &[Row] = &[
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
    ("`min_idle_per_host`", &[Field(POOL, HOST_DEFAULT, "min_idle", &[(POOL, MIN_IDLE)])]),
    (
        "hosts that `min_idle_per_host` is for",
        &[
            Const("pool/state/parts.rs", "MOST_HOSTS", &[(POOL, MIN_IDLE), (TUNING, "kept warm from")]),
            Text("1 h", WARM, KEPT_FOR),
        ],
    ),
    (
        "replacements for connections that `min_idle_per_host` keeps open",
        &[
            Const(WARM, "FIRST_PAUSE", &[(POOL, MIN_IDLE)]),
            Const(WARM, "LONGEST_PAUSE", &[(POOL, MIN_IDLE)]),
            Const(WARM, "GRACE", &[(TUNING, "Others are opened")]),
        ],
    ),
    (
        "`idle_timeout`",
        &[
            Field(
                POOL,
                HOST_DEFAULT,
                "idle_timeout",
                &[(POOL, "pub fn idle_timeout(mut"), (TUNING, "keeps idle ones for")],
            ),
            Const("client/policy/framing.rs", "MARGIN", &[]),
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
            Const("pool/state/dials/mod.rs", "WINDOW", &[(POOL, "pub fn max_dials_per_host(")]),
            Const("pool/state/dials/mod.rs", "PROBE_WINDOW", &[(POOL, "pub fn max_dials_per_host(")]),
            Const("pool/state/dials/mod.rs", "NARROW_WINDOW", &[(POOL, "pub fn max_dials_per_host(")]),
            Const("pool/state/dials/mod.rs", "PATIENCE", &[(POOL, "pub fn max_dials_per_host(")]),
        ],
    ),
    ("`follow_dns`", &[Text("", POOL, "#[default]\n    AfterTwoTtls")]),
    ("balance over a host's addresses", &[Text("", "client/settings/connect.rs", "addresses: Addresses::Both")]),
    (
        "latency of an address, when balanced",
        &[
            Const("pool/state/balance/address.rs", "LONGEST_DECAY", &[]),
            Const("pool/state/balance/address.rs", "FIRST_DECAY", &[]),
            Const("pool/state/balance/address.rs", "TOLERANCE", &[]),
        ],
    ),
    ("connections opened for the balance", &[Const("pool/state/balance/mod.rs", "RECENT", &[])]),
    (
        "an address that cannot be connected to, when balanced",
        &[
            Const("pool/state/balance/address.rs", "FIRST_DIAL_PAUSE", &[]),
            Const("pool/state/balance/address.rs", "LONGEST_DIAL_PAUSE", &[]),
        ],
    ),
    (
        "`ejection`",
        &[
            Field(
                EJECTION,
                EJECTION_DEFAULT,
                "failures",
                &[(EJECTION, "pub fn failures("), (BALANCING, "A pod that fails")],
            ),
            Field(
                EJECTION,
                EJECTION_DEFAULT,
                "failure_percent",
                &[(EJECTION, "pub fn failure_percent("), (BALANCING, "A pod that fails")],
            ),
            Const("pool/state/balance/outliers.rs", "LEAST_REQUESTS", &[(EJECTION, "pub fn failure_percent(")]),
            Field(
                EJECTION,
                EJECTION_DEFAULT,
                "base_time",
                &[(EJECTION, "pub fn base_time("), (BALANCING, "A pod that fails")],
            ),
            Field(EJECTION, EJECTION_DEFAULT, "max_time", &[(EJECTION, "pub fn max_time(")]),
            Field(EJECTION, EJECTION_DEFAULT, "max_percent", &[(EJECTION, "pub fn max_percent(")]),
        ],
    ),
    (
        "share of an address that is used again",
        &[Const("pool/state/balance/outliers.rs", "RAMP", &[(EJECTION, "pub struct Ejection")])],
    ),
    (
        "no descriptor or local port left",
        &[Const("pool/state/dials/mod.rs", "FIRST_DELAY", &[]), Const("pool/state/dials/mod.rs", "LONGEST_DELAY", &[])],
    ),
    ("versions", &[Text("", "client/settings/connect.rs", "versions: Versions::Any")]),
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
    (
        "receive window of a stream",
        &[Const("connect/conn/http_config.rs", "STREAM_WINDOW", &[(SECURITY, "| unread data")])],
    ),
    (
        "receive window of a connection",
        &[Const("connect/conn/http_config.rs", "CONNECTION_WINDOW", &[(SECURITY, "| unread data")])],
    ),
    (
        "pings while a request is under way",
        &[
            Const("connect/http2/frames.rs", "SILENCE", &[(HTTP_KNOBS, "pub fn http2_keep_alive_interval(")]),
            Const("connect/http2/frames.rs", "MAX_PINGS", &[(HTTP_KNOBS, "pub fn http2_keep_alive_interval(")]),
            Const("connect/http2/frames.rs", "PING_TIMEOUT", &[(HTTP_KNOBS, "pub fn http2_keep_alive_interval(")]),
        ],
    ),
    ("`http2_adaptive_window`", &[Text("", "connect/conn/http_config.rs", "derive(Debug, Clone, Copy, Default)")]),
    ("`http2_max_frame_size`", &[Text("16,384", HTTP_KNOBS, "16,384 by default, also for `None`")]),
    ("`http2_header_table_size`", &[Text("4,096", HTTP_KNOBS, "4,096 by default, also for `None`; with 0")]),
    (
        "`http2_max_send_buf_size`",
        &[Text("1 MiB", "connect/conn/http_config.rs", "`None` for hyper's own limit of 1 MiB")],
    ),
    ("`http2_keep_alive_interval`", &[Text("", "connect/http2/frames.rs", PING_CONFIG)]),
    (
        "`http2_keep_alive_timeout`",
        &[Const(
            "connect/http2/frames.rs",
            "INTERVAL_PING_TIMEOUT",
            &[(HTTP_KNOBS, "pub fn http2_keep_alive_timeout(")],
        )],
    ),
    ("`http2_keep_alive_while_idle`", &[Text("", "connect/http2/frames.rs", PING_CONFIG)]),
    (
        "a server that asks for calm (ENHANCE_YOUR_CALM)",
        &[
            Const("pool/state/memory/mod.rs", "FIRST_PAUSE", &[]),
            Const("pool/state/memory/mod.rs", "LONGEST_PAUSE", &[]),
        ],
    ),
    ("`timeout`", &[Text("", BUILDER, "headers: Some(SILENCE_TIMEOUT), ..Timeouts::default()")]),
    ("`queue_timeout`", &[]),
    (
        "`headers_timeout`",
        &[Const(DEADLINES, "SILENCE_TIMEOUT", &[(BUILDER, "pub fn headers_timeout("), (SECURITY, "| silence before")])],
    ),
    ("`min_speed`", &[Text("", DEADLINES, "Self { bytes: 1, over }")]),
    ("`body_idle_timeout`", &[Const(DEADLINES, "SILENCE_TIMEOUT", &[(BUILDER, "pub fn body_idle_timeout(")])]),
    (
        "`Expect: 100-continue`",
        &[Const(
            "client/body/upload.rs",
            "CONTINUE_TIMEOUT",
            &[("client/request_builder/mod.rs", "pub fn expect_continue(")],
        )],
    ),
    ("headers", &[]),
    (
        "number of request headers",
        &[Const("client/request/mod.rs", "MAX_HEADERS", &[("client/request_builder/mod.rs", "pub fn header<")])],
    ),
    (
        "length of a URL",
        &[Const("client/request/mod.rs", "MAX_URL_LENGTH", &[("client/request/mod.rs", "pub fn new(method: Method")])],
    ),
    ("tolerance for wrong heads over HTTP/1.1, `http09_responses`", &[]),
    ("`https_only`", &[Text("", BUILDER, "https_only: false")]),
    ("`http1_max_headers`", &[Text("100", "connect/conn/http_config.rs", "hyper's own limit of 100")]),
    (
        "length of a response's headers",
        &[Const(
            "connect/conn/http_config.rs",
            "MAX_HEAD",
            &[(HTTP_KNOBS, "pub fn http1_max_headers("), (SECURITY, "| head of a response")],
        )],
    ),
    (
        "interim responses (1xx) to a request",
        &[Const("connect/io/mod.rs", "MAX_INTERIM", &[(SECURITY, "| interim responses")])],
    ),
    ("decompression", &[Text("", "client/body/decode/mod.rs", "Self { codings: ALL")]),
    (
        "`max_bytes` of a decompressed body",
        &[Field(
            "client/body/decode/mod.rs",
            "Self { codings: ALL",
            "max_bytes",
            &[
                ("client/body/decode/mod.rs", "pub struct Decompression"),
                ("client/body/decode/mod.rs", "pub fn max_bytes("),
                (SECURITY, "| decompressed body"),
            ],
        )],
    ),
    (
        "`max_ratio` of decompression",
        &[
            Field(
                "client/body/decode/mod.rs",
                "Self { codings: ALL",
                "max_ratio",
                &[
                    ("client/body/decode/mod.rs", "pub struct Decompression"),
                    ("client/body/decode/mod.rs", "pub fn max_ratio("),
                    (SECURITY, "| decompressed body"),
                ],
            ),
            Const(
                "client/body/decode/mod.rs",
                "ALWAYS_ALLOWED",
                &[
                    ("client/body/decode/mod.rs", "pub struct Decompression"),
                    ("client/body/decode/mod.rs", "pub fn max_ratio("),
                ],
            ),
        ],
    ),
    ("codings of one body", &[Const("client/body/decode/mod.rs", "MAX_CODINGS", &[(SECURITY, "| decompressed body")])]),
    (
        "members of one body (gzip, zstd)",
        &[
            Const("client/body/decode/mod.rs", "MAX_MEMBERS", &[(SECURITY, "| decompressed body")]),
            Const("client/body/decode/mod.rs", "BYTES_OF_A_MEMBER", &[(SECURITY, "| decompressed body")]),
        ],
    ),
    ("length of a body", &[Text("", BUILDER, "..CallOptions::default()")]),
    (
        "start of an error's body",
        &[
            Const("redact.rs", "KEPT_BODY_BYTES", &[("error/mod.rs", "pub fn body_start("), STATUS_BODY]),
            Const("client/response/mod.rs", "START_TIMEOUT", &[STATUS_BODY]),
        ],
    ),
    (
        "rest of a body that is dropped",
        &[
            Const(
                "client/body/return_guard/mod.rs",
                "DRAIN_TIMEOUT",
                &[("client/response/mod.rs", "pub struct Response {")],
            ),
            Const(
                "client/body/return_guard/mod.rs",
                "MAX_DRAINED",
                &[("client/response/mod.rs", "pub struct Response {")],
            ),
        ],
    ),
    ("connection after a response", &[Const("client/body/return_guard/mod.rs", "READY_TIMEOUT", &[])]),
    (
        "rest of a request whose response is over",
        &[
            Const("client/body/return_guard/mod.rs", "UPLOAD_TIMEOUT", &[]),
            Const("client/body/return_guard/mod.rs", "UPLOAD_IDLE_TIMEOUT", &[]),
            Const("client/body/return_guard/mod.rs", "READY_TIMEOUT", &[]),
        ],
    ),
    ("answer to a request that could not be sent whole", &[Const("connect/io/stream_io.rs", "LAST_READ_TIMEOUT", &[])]),
    ("`retry` of an event source", &[Const(RECONNECTION, "FIRST_RETRY", &[(EVENT_SOURCE, "pub fn retry("), SOURCE])]),
    (
        "`retry_limits`",
        &[
            Const(
                RECONNECTION,
                "MIN_RETRY",
                &[(EVENT_SOURCE, "pub fn retry_limits("), (SECURITY, "| reconnection time of events")],
            ),
            Const(
                RECONNECTION,
                "MAX_RETRY",
                &[(EVENT_SOURCE, "pub fn retry_limits("), (SECURITY, "| reconnection time of events")],
            ),
        ],
    ),
    (
        "`max_backoff`",
        &[
            Const(RECONNECTION, "MAX_BACKOFF", &[(EVENT_SOURCE, "pub fn max_backoff(")]),
            Const(RECONNECTION, "MIN_BACKOFF", &[]),
        ],
    ),
    ("`max_failures`", &[Text("", RECONNECTION, "max_failures: u32::MAX")]),
    (
        "`max_line`",
        &[Const(
            PARSER,
            "MAX_LINE",
            &[
                (EVENT_SOURCE, "pub fn max_line("),
                ("client/sse/mod.rs", "pub fn max_line("),
                (SECURITY, "| line, and data"),
            ],
        )],
    ),
    (
        "`max_event`",
        &[Const(
            PARSER,
            "MAX_EVENT",
            &[
                (EVENT_SOURCE, "pub fn max_event("),
                ("client/sse/mod.rs", "pub fn max_event("),
                (SECURITY, "| line, and data"),
            ],
        )],
    ),
    (
        "ID and type of an event",
        &[Const(
            PARSER,
            "MAX_ID",
            &[SOURCE, ("client/sse/mod.rs", "pub struct Events"), (SECURITY, "| line, and data")],
        )],
    ),
    ("length of all events", &[]),
    ("time limits of an event source", &[]),
    (
        "`concurrency` of `send_all`",
        &[Const(SEND_ALL, "DEFAULT_CONCURRENCY", &[(SEND_ALL, "pub fn send_all<"), (SEND_ALL, "pub fn concurrency(")])],
    ),
    (
        "rest of the request after the server agreed to an upgrade",
        &[Const(UPGRADED, "HANDOVER_TIMEOUT", &[("client/response/mod.rs", "pub async fn upgrade(")])],
    ),
    (
        "HTTP/2 stream that is dropped",
        &[Const(UPGRADED, "CLOSE_TIMEOUT", &[UPGRADED_STREAM]), Const(UPGRADED, "MAX_DISCARDED", &[UPGRADED_STREAM])],
    ),
    ("time limits of an upgraded stream", &[]),
    (
        "redirects",
        &[Const(
            "client/policy/redirect.rs",
            "DEFAULT_LIMIT",
            &[
                ("client/policy/redirect.rs", "pub struct Policy("),
                ("client/policy/redirect.rs", "pub fn same_origin("),
                (BUILDER, "pub fn redirect("),
                (SECURITY, "| redirects"),
            ],
        )],
    ),
    (
        "redirects with a policy of your own",
        &[Const("client/policy/redirect.rs", "CUSTOM_LIMIT", &[("client/policy/redirect.rs", "pub fn custom<")])],
    ),
    ("`referer`", &[Text("", BUILDER, "sends_referer: false")]),
    ("secrets", &[]),
    ("`cookie_store`", &[Text("", "client/client_builder/mod.rs", "cookies: None,")]),
    ("name and value of a cookie", &[Const("cookie/rules.rs", "MAX_PAIR", &[JAR, (SECURITY, "| cookies of")])]),
    ("`Path` and `Domain` of a cookie", &[Const("cookie/rules.rs", "MAX_ATTRIBUTE", &[JAR])]),
    ("lifetime of a cookie", &[Const("cookie/rules.rs", "MAX_LIFETIME", &[JAR])]),
    ("cookies taken from one response", &[Const("cookie/mod.rs", "MAX_PER_RESPONSE", &[JAR])]),
    ("cookies of a site", &[Const("cookie/sites.rs", "MAX_PER_SITE", &[JAR, (SECURITY, "| cookies of")])]),
    ("cookies of a jar", &[Const("cookie/sites.rs", "MAX_COOKIES", &[JAR, (SECURITY, "| cookies of")])]),
    ("`Cookie` header", &[Const("cookie/sites.rs", "MAX_HEADER", &[JAR])]),
    (
        "resends of a request that the server did not process",
        &[
            Const(
                "client/policy/resend.rs",
                "MAX_ATTEMPTS",
                &[("client/handle.rs", "pub fn execute("), (SECURITY, "| sends of one request")],
            ),
            Const("client/policy/resend.rs", "MAX_POSSIBLY_PROCESSED", &[("client/handle.rs", "pub fn execute(")]),
        ],
    ),
    (
        "wait before a resend",
        &[
            Const("client/policy/resend.rs", "FIRST_BACKOFF", &[]),
            Text("75", "client/policy/resend.rs", "longest / 2 + (longest / 2).mul_f64(random)"),
        ],
    ),
    (
        "resends to one origin",
        &[
            Const("pool/state/memory/mod.rs", "MOST_RESENDS", &[]),
            Const("pool/state/memory/mod.rs", "RESENDS_PER_SECOND", &[]),
        ],
    ),
    ("retries by policy", &[Text("", BUILDER, "..CallOptions::default()")]),
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
        "its budget, for each origin",
        &[
            Text("10 s", RETRY, "per_second: 0.1"),
            Text("", RETRY, "per_call: 0.2"),
            Const(RETRY, "MIN_FIRST_SAVED", &[]),
            Const(RETRY, "MAX_SAVED", &[(RETRY, "pub fn budget(")]),
        ],
    ),
    ("token of a `TokenSource`", &[]),
    (
        "refresh of a token in use",
        &[Const(TOKEN, "REFRESH_AHEAD", &[]), Text("", TOKEN, "life - (life / 10).min(REFRESH_AHEAD)")],
    ),
    (
        "time of a refresh",
        &[Const(TOKEN, "REFRESH_TIMEOUT", &[TOKEN_SOURCE]), Const(TOKEN, "LOST_AFTER", &[TOKEN_SOURCE])],
    ),
    (
        "pause after a refresh that failed",
        &[Const(TOKEN, "FIRST_PAUSE", &[]), Const(TOKEN, "LONGEST_PAUSE", &[TOKEN_SOURCE])],
    ),
    ("pause before a refresh if the new token is rejected as well", &[Const(TOKEN, "REJECTION_PAUSE", &[])]),
    ("hedging", &[Text("", BUILDER, "..CallOptions::default()")]),
    (
        "`HedgePolicy::new()`",
        &[
            Text("95", HEDGE, HEDGE_NEW),
            Const(HEDGE, "WINDOW", &[HEDGES]),
            Field(HEDGE, HEDGE_NEW, "floor", &[NEW_HEDGES, (HEDGE, "pub fn floor(")]),
            Field(HEDGE, HEDGE_NEW, "min_samples", &[NEW_HEDGES, (HEDGE, "pub fn min_samples(")]),
            Const(HEDGE, "MAX_ORIGINS", &[HEDGES]),
        ],
    ),
    (
        "hedges of an origin",
        &[Text("5", HEDGE, "budget: 0.05"), Const(HEDGE, "MAX_SAVED", &[(HEDGE, "pub fn budget(")])],
    ),
    (
        "calls that a `Recorder` keeps",
        &[
            Text("10", "../companions/inspect/src/recorder.rs", "calls: 10, origins: 64"),
            Text("64", "../companions/inspect/src/recorder.rs", "calls: 10, origins: 64"),
        ],
    ),
    ("a step of `Client::doctor`", &[Const("doctor/finding.rs", "LONGEST_STEP", &[])]),
    ("a request of `Client::doctor`", &[Const("doctor/finding.rs", "LONGEST_REQUEST", &[])]),
    (
        "`max_hosts`",
        &[Const(
            "../companions/meter/src/known_names.rs",
            "MAX_NAMES",
            &[
                ("../companions/meter/README.md", "The first"),
                ("../companions/metrics/src/lib.rs", "pub fn max_hosts("),
                ("../companions/opentelemetry/src/measurements.rs", "pub fn max_hosts("),
            ],
        )],
    ),
    ("phases of a request in a trace", &[]),
    ("answer to an exporter of OpenTelemetry", &[Const(EXPORTERS, "MAX_BODY_SIZE", &[(EXPORTERS, "pub struct Http")])]),
    ("time of an exporter's request", &[Const(EXPORTERS, "TIMEOUT", &[(EXPORTERS, "pub struct Http")])]),
    ("answer to oauth2", &[Const(OAUTH2, "MAX_BODY_SIZE", &[(OAUTH2, "pub struct Http(")])]),
];
