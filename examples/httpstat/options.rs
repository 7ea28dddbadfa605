//! The options of the program.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use speeddial::http::{HeaderName, HeaderValue, Method};

/// Draws each HTTP request as a waterfall: where its time went, and why
#[derive(Parser)]
#[command(name = "httpstat", version)]
pub(crate) struct Options {
    /// URLs to request [default: an embedded server on loopback]
    pub(crate) urls: Vec<String>,
    /// DNS server to ask instead of the system's
    #[arg(long, value_name = "IP:PORT", requires = "urls")]
    pub(crate) dns: Option<SocketAddr>,
    /// Number of requests to each URL, each of which is drawn [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,
    /// Make N requests to each URL, print a line for each, and draw the slowest one; with --compare, the median ones
    #[arg(long, value_name = "N", conflicts_with = "count", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: Option<u32>,
    /// Draw a request to each of two URLs on one scale, each with a client of its own
    #[arg(long, conflicts_with = "count")]
    pub(crate) compare: bool,
    /// Pause between requests [default: none; before the last of three or more that are drawn, until the idle timeout and the
    /// TTL have passed, at most 10 s]
    #[arg(long, value_name = "MS")]
    pub(crate) interval: Option<u64>,
    /// Method of the requests [default: GET, or POST with -d]
    #[arg(short = 'X', value_name = "METHOD")]
    pub(crate) method: Option<Method>,
    /// Header to send; may be repeated
    #[arg(short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Body to send
    #[arg(short = 'd', value_name = "DATA")]
    pub(crate) data: Option<String>,
    /// Idle timeout of connections
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    pub(crate) idle_timeout: u64,
    /// Most connections to a host [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_per_host: Option<u32>,
    /// Print a JSON object for each request, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the requests into an SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the requests into a HAR file, which browsers show; secrets in headers and the values in queries are removed
    #[arg(long, value_name = "FILE")]
    pub(crate) har: Option<PathBuf>,
}

impl Options {
    /// Reads the options. Ends the program if they are wrong.
    pub(crate) fn read() -> Self {
        let options = Self::parse();
        if options.compare && !matches!(options.urls.len(), 0 | 2) {
            let message = "--compare takes two URLs, or none for the embedded server";
            Self::command().error(ErrorKind::WrongNumberOfValues, message).exit();
        }
        options
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `name: value`")?;
    let name = name.trim().parse::<HeaderName>().map_err(|error| error.to_string())?;
    let value = value.trim().parse::<HeaderValue>().map_err(|error| error.to_string())?;
    Ok((name, value))
}
