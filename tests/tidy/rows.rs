//! The rows of the guide's table of defaults, and where the code has their figures.

/// A place in the documentation that repeats a default: a file below `src`, and a line of the item or of the guide.
pub(super) type Place = (&'static str, &'static str);

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

const BUILDER: &str = "client/client_builder/mod.rs";
const TLS_KNOBS: &str = "client/client_builder/tls.rs";
const CACHE: &str = "dns/cache/mod.rs";
const HICKORY: &str = "dns/hickory/mod.rs";
const RESOLVER: Place = (HICKORY, "pub struct HickoryResolver");
const CACHED: Place = ("dns/cache/mod.rs", "pub struct CachedResolver {");
const CONFIG_DEFAULT: &str = "impl Default for Config";
const SECURITY: &str = "../SECURITY.md";

/// A row of the table: its setting, and the sources of its figures. A row without sources has no figures.
pub(super) type Row = (&'static str, &'static [Source]);

/// The rows from DNS to proxies.
pub(super) const ROWS: &[Row] = &[
    ("resolver", &[Const("dns/hickory/system/mod.rs", "CHECK_INTERVAL", &[(HICKORY, "pub fn system()")])]),
    (
        "TTL of the platform's answers, with `hickory_dns(false)`",
        &[Const(
            "dns/resolve.rs",
            "PLATFORM_TTL",
            &[("client/client_builder/dns.rs", "pub fn hickory_dns("), ("dns/resolve.rs", "pub struct SystemResolver")],
        )],
    ),
    (
        "time of one try of a server",
        &[Const(
            "dns/hickory/system/config.rs",
            "DEFAULT_TRY_TIMEOUT",
            &[(HICKORY, "pub fn with_try_timeout("), RESOLVER],
        )],
    ),
    (
        "tries of each server",
        &[Const("dns/hickory/system/config.rs", "DEFAULT_TRIES", &[(HICKORY, "pub fn with_tries("), RESOLVER])],
    ),
    (
        "time of a whole lookup",
        &[Const(
            "dns/hickory/system/config.rs",
            "DEFAULT_TOTAL_TIMEOUT",
            &[(HICKORY, "pub fn with_total_timeout("), RESOLVER, (CACHE, "pub fn query_timeout(")],
        )],
    ),
    ("next server, while one is silent by UDP", &[Const("dns/hickory/servers/tries.rs", "HEAD_START", &[RESOLVER])]),
    ("the same server again, by TCP", &[Const("dns/hickory/servers/tries.rs", "ASKED_AGAIN_AFTER", &[RESOLVER])]),
    (
        "server that was silent for a whole try",
        &[
            Const("dns/hickory/servers/group.rs", "SILENT_FOR", &[RESOLVER]),
            Const("dns/hickory/servers/tries.rs", "HEAD_START", &[]),
        ],
    ),
    (
        "lookups in flight",
        &[
            Const(
                "dns/hickory/system/config.rs",
                "DEFAULT_MAX_IN_FLIGHT",
                &[(HICKORY, "pub fn with_max_in_flight("), (SECURITY, "| DNS lookups that ask at once")],
            ),
            Const("dns/hickory/search/mod.rs", "SLOW_AFTER", &[(HICKORY, "pub fn with_max_in_flight(")]),
        ],
    ),
    (
        "time of a query below the cache",
        &[Const("dns/cache/state/values.rs", "QUERY_TIMEOUT", &[(CACHE, "pub fn query_timeout(")])],
    ),
    (
        "another word of a later server",
        &[
            Const("dns/cache/state/mod.rs", "HELD_BEYOND_TTL", &[RESOLVER]),
            Const("dns/cache/state/mod.rs", "DOUBTFUL_NO", &[]),
        ],
    ),
    (
        "a later server's address",
        &[
            Const("dns/cache/state/mod.rs", "DOUBTFUL_TTL", &[]),
            Const("dns/cache/state/mod.rs", "DOUBTFUL_REFRESH", &[]),
            Const("dns/cache/state/mod.rs", "EARLY_QUESTIONS", &[]),
        ],
    ),
    (
        "addresses of which none connects",
        &[
            Const("dns/cache/state/family_state.rs", "SURE_FOR", &[]),
            Const("dns/cache/state/mod.rs", "EARLY_QUESTIONS", &[]),
        ],
    ),
    (
        "names in the cache",
        &[Field(
            "dns/cache/state/values.rs",
            CONFIG_DEFAULT,
            "max_names",
            &[(CACHE, "pub fn max_names("), (SECURITY, "| DNS names kept")],
        )],
    ),
    (
        "time an answer is kept",
        &[
            Field("dns/cache/state/values.rs", CONFIG_DEFAULT, "ttl_ceiling", &[(CACHE, "pub fn ttl_ceiling(")]),
            Text("", "dns/cache/state/values.rs", "ttl_floor: Duration::ZERO"),
        ],
    ),
    (
        "time a \"does not exist\" is kept",
        &[
            Field(
                "dns/cache/state/values.rs",
                CONFIG_DEFAULT,
                "negative_ceiling",
                &[(CACHE, "pub fn negative_ceiling(")],
            ),
            Const("dns/cache/state/values.rs", "DEFAULT_NEGATIVE_TTL", &[]),
        ],
    ),
    (
        "refresh of a name in use",
        &[Text("90 95", "dns/cache/state/mod.rs", "ttl.mul_f64(0.05 + 0.05 * self.jitter.f64())")],
    ),
    (
        "stale answers",
        &[
            Field("dns/cache/state/values.rs", CONFIG_DEFAULT, "max_stale", &[(CACHE, "pub fn stale(")]),
            Const("dns/cache/mod.rs", "STALE_ANSWER_TIMEOUT", &[(CACHE, "pub fn stale(")]),
        ],
    ),
    (
        "pause after a failure of the servers",
        &[
            Const("dns/cache/state/family_state.rs", "FIRST_BACKOFF", &[CACHED]),
            Const("dns/cache/state/family_state.rs", "LONGEST_BACKOFF", &[CACHED]),
            Field(
                "dns/cache/state/values.rs",
                CONFIG_DEFAULT,
                "longest_pause",
                &[CACHED, (CACHE, "pub fn failure_pause(")],
            ),
        ],
    ),
    ("name in use whose TTL is 0", &[Const("dns/cache/state/family_state.rs", "PASSED_FOR", &[CACHED])]),
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
        &[Const("client/settings/connect.rs", "CONNECT_TIMEOUT", &[(BUILDER, "pub fn connect_timeout(")])],
    ),
    ("families", &[]),
    (
        "addresses of a name",
        &[
            Field(
                "race/schedule.rs",
                CONFIG_DEFAULT,
                "max_addresses",
                &[("connect/resolve/mod.rs", "pub enum Addresses"), (SECURITY, "| DNS names kept")],
            ),
            Const("race/address_order.rs", "MAX_SORTED", &[("connect/resolve/mod.rs", "pub enum Addresses")]),
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
    ("`keepalive_interval`", &[Text("", "transport/tcp.rs", "keepalive_interval: None")]),
    ("`keepalive_retries`", &[Text("", "transport/tcp.rs", "keepalive_retries: None")]),
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
    ("cryptography", &[]),
    ("trusted certificates", &[Text("", "tls/config/mod.rs", "#[default]\n    Platform")]),
    ("lowest version", &[Text("", "tls/version.rs", "(Version::TLS_1_2, &rustls::version::TLS12)]")]),
    ("highest version", &[Text("", "tls/version.rs", "[(Version::TLS_1_3, &rustls::version::TLS13)")]),
    ("server name (SNI), `tls_sni`", &[Text("", "tls/config/mod.rs", "hides_name: bool")]),
    ("lists of revoked certificates, `tls_crls_only`", &[]),
    ("`tls_sslkeylogfile`", &[Text("", "tls/config/mod.rs", "logs_keys: bool")]),
    (
        "`tls_reload_interval`, for files that are watched",
        &[Const("client/client_builder/mod.rs", "RELOAD_INTERVAL", &[(TLS_KNOBS, "pub fn tls_reload_interval(")])],
    ),
    ("`tls_timeout`", &[Const("client/settings/connect.rs", "TLS_TIMEOUT", &[(TLS_KNOBS, "pub fn tls_timeout(")])]),
    (
        "sessions kept for resumption",
        &[Const(
            "tls/config/mod.rs",
            "SESSION_HOSTS",
            &[("tls/config/mod.rs", "pub fn session_cache("), ("tls/config/mod.rs", "pub struct TlsConfig")],
        )],
    ),
    ("`prepare_in_background`", &[Text("", "tls/config/mod.rs", "prepared_late: bool")]),
    ("proxies", &[Text("", "client/settings/connect.rs", "proxies: Proxies::from_environment()")]),
    ("this machine (`localhost`, loopback addresses)", &[]),
    ("`HTTP_PROXY` in a CGI process", &[]),
    (
        "answers to CONNECT",
        &[
            Const("connect/proxy/http_connect.rs", "MAX_INTERIM", &[]),
            Const("connect/proxy/http_connect.rs", "MAX_HEAD", &[]),
        ],
    ),
    (
        "body of a refusal of CONNECT",
        &[
            Const("connect/proxy/http_connect.rs", "MAX_BODY", &[]),
            Const("connect/proxy/http_connect.rs", "REST_TIMEOUT", &[]),
            Const("connect/proxy/http_connect.rs", "SHOWN", &[]),
        ],
    ),
    ("headers of CONNECT", &[]),
];
