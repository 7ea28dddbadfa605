//! The settings of a client that reqwest has, too: each shown by what goes over the wire.

mod connector_layers;
mod dns;
mod hosts;
mod http;
#[cfg(feature = "tracing")]
mod log;
mod others;
mod proxies;
mod tcp;
#[cfg(feature = "__tls")]
mod tls;

use speeddial::{ClientBuilder, ErrorKind};

/// Checks that `build` refuses these settings, with these words.
fn assert_refused(builder: ClientBuilder, words: &str) {
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    let text = error.to_string();
    assert!(text.starts_with("build a client: ") && text.contains(words), "{text}");
}
