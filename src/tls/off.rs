//! TLS where neither `tls` nor `tls-ring` is on: no origin and no proxy is `https`, nothing can be set, and nothing fails.

#![allow(dead_code, reason = "values of these types are only passed on")]

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::origin::Host;
use crate::trace::TlsFacts;

pub(crate) type TlsConfigError = Infallible;

#[derive(Clone)]
pub(crate) struct Identity;

#[derive(Debug, Clone, Default)]
pub(crate) struct TlsConfig;

impl TlsConfig {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn identity(self, _: Identity) -> Self {
        self
    }

    pub(crate) fn check(&self, _: &[&[u8]]) -> Result<(), TlsConfigError> {
        Ok(())
    }

    pub(crate) fn is_watched(&self) -> bool {
        false
    }

    pub(crate) fn refresh(&self) -> Vec<TlsConfigError> {
        Vec::new()
    }

    pub(crate) fn is_unsure(&self) -> bool {
        false
    }
}

#[derive(Clone)]
pub(crate) struct TlsInfo;

impl TlsInfo {
    pub(crate) fn new(_: Arc<TlsFacts>) -> Self {
        Self
    }
}

#[derive(Clone)]
pub(crate) struct Tls;

pub(crate) struct TlsConnected<S> {
    pub(crate) stream: S,
    pub(crate) facts: TlsFacts,
}

impl Tls {
    pub(crate) fn new(_: &TlsConfig, _: &'static [&'static [u8]]) -> Self {
        Self
    }

    pub(crate) fn changed(&self, _: &TlsConfig, _: &'static [&'static [u8]]) -> Self {
        Self
    }

    pub(crate) fn is_same(&self, _: &Self) -> bool {
        true
    }

    pub(crate) fn includes(&self, _: &Self) -> bool {
        true
    }

    pub(crate) fn for_proxies(&self, _: &'static [&'static [u8]]) -> Self {
        Self
    }

    pub(crate) fn prepare(&self) {}

    pub(crate) async fn handshake<S>(&self, _: S, _: &Host) -> io::Result<TlsConnected<S>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) enum TlsFailed {}

impl TlsFailed {
    pub(crate) fn of(_: &io::Error) -> Option<&'static Self> {
        None
    }

    pub(crate) fn timed_out(_: Duration) -> io::Error {
        io::ErrorKind::TimedOut.into()
    }

    pub(crate) fn clause(&self, _: &str) -> String {
        match *self {}
    }

    pub(crate) fn clause_after_handshake(&self) -> String {
        match *self {}
    }

    pub(crate) fn reason(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match *self {}
    }
}

pub(crate) fn of_proxy(error: io::Error) -> io::Error {
    error
}

pub(crate) fn is_of_proxy(_: &io::Error) -> bool {
    false
}

pub(crate) fn refusal(_: &io::Error) -> Option<io::Error> {
    None
}
