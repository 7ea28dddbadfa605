//! Takes the compression off a body, piece by piece (RFC 9110 §8.4). A core.

use std::fmt;

use bytes::Bytes;
use compression_codecs::DecodeV2;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};

/// How bodies are decompressed: as many codings as the crate's features have (`gzip`, `brotli`, `zstd`, `deflate`) are asked for,
/// where a request does not say itself what it accepts, and taken off. A bomb is an error: by default a body of more than 1 GiB, or
/// one that grew more than 250 times and has 8 MiB.
///
/// ```
/// # #[cfg(feature = "gzip")] {
/// use speeddial::{Client, Decompression};
///
/// let client = Client::builder().decompress(Decompression::default().max_bytes(1 << 20)).build();
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decompression {
    enabled: bool,
    bytes: u64,
    ratio: u64,
}

/// So many bytes are decompressed whatever they were made of.
const HARMLESS: u64 = 8 << 20;
/// How much is decompressed at once.
const PIECE: usize = 32 << 10;
/// More codings than this nobody needs.
const MAX_CODINGS: usize = 2;
/// The most zeros behind the members of a gzip body that are taken for padding.
const MAX_PADDING: usize = 1 << 20;

impl Default for Decompression {
    fn default() -> Self {
        Self { enabled: true, bytes: 1 << 30, ratio: 250 }
    }
}

impl Decompression {
    /// None: bodies stay as they come, and nothing is asked for.
    pub fn none() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// The most bytes a body may have when it is decompressed; `u64::MAX` for no limit.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// How many times longer than it came a body may be when it is decompressed, from 8 MiB on; `u64::MAX` for no limit.
    #[must_use]
    pub fn max_ratio(self, ratio: u64) -> Self {
        Self { ratio, ..self }
    }

    /// What a request says it accepts.
    pub(crate) fn accepted(&self) -> Option<HeaderValue> {
        self.enabled.then(|| HeaderValue::from_static(ACCEPTED))
    }
}

/// Those there are, the best first.
const ACCEPTED: &str =
    match (cfg!(feature = "zstd"), cfg!(feature = "brotli"), cfg!(feature = "gzip"), cfg!(feature = "deflate")) {
        (true, true, true, true) => "zstd, br, gzip, deflate",
        (true, true, true, false) => "zstd, br, gzip",
        (true, true, false, true) => "zstd, br, deflate",
        (true, true, false, false) => "zstd, br",
        (true, false, true, true) => "zstd, gzip, deflate",
        (true, false, true, false) => "zstd, gzip",
        (true, false, false, true) => "zstd, deflate",
        (true, false, false, false) => "zstd",
        (false, true, true, true) => "br, gzip, deflate",
        (false, true, true, false) => "br, gzip",
        (false, true, false, true) => "br, deflate",
        (false, true, false, false) => "br",
        (false, false, true, true) => "gzip, deflate",
        (false, false, true, false) => "gzip",
        _ => "deflate",
    };

/// Why a body cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("more than {MAX_CODINGS} codings are on it")]
    TooManyCodings,
    #[error("it is not valid {0}: {1}")]
    Invalid(Coding, String),
    #[error("its {0} ends too soon")]
    Cut(Coding),
    #[error("it has more than {0} bytes")]
    TooLong(u64),
    #[error("it grows more than {0} times")]
    Bomb(u64),
}

/// A coding that can be taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Brotli,
    Zstd,
    Deflate,
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gzip => "gzip",
            Self::Brotli => "brotli",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        })
    }
}

impl Coding {
    fn named(name: &str) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let coding = match () {
            () if is("gzip") || is("x-gzip") => Self::Gzip,
            () if is("br") => Self::Brotli,
            () if is("zstd") => Self::Zstd,
            () if is("deflate") => Self::Deflate,
            () => return None,
        };
        let enabled = match coding {
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Brotli => cfg!(feature = "brotli"),
            Self::Zstd => cfg!(feature = "zstd"),
            Self::Deflate => cfg!(feature = "deflate"),
        };
        enabled.then_some(coding)
    }

    /// Whether several of them behind each other are one body.
    fn has_members(self) -> bool {
        matches!(self, Self::Gzip | Self::Zstd)
    }

    /// `start` is what the data begins with: servers send deflate with and without its envelope (RFC 9110 §8.4.1.2).
    #[cfg_attr(not(feature = "deflate"), expect(unused_variables, reason = "the others say what they are"))]
    fn codec(self, start: &[u8]) -> Box<dyn DecodeV2 + Send + Sync> {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Box::new(compression_codecs::GzipDecoder::new()),
            #[cfg(feature = "brotli")]
            Self::Brotli => Box::new(compression_codecs::BrotliDecoder::new()),
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                // The most memory that a decoder has to have (RFC 8878 §3.1.1.1.2), where others take what a peer says.
                let window = compression_codecs::zstd::params::DParameter::window_log_max(23);
                Box::new(compression_codecs::ZstdDecoder::new_with_params(&[window]))
            }
            #[cfg(feature = "deflate")]
            Self::Deflate => match start {
                [first, second, ..]
                    if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31) =>
                {
                    Box::new(compression_codecs::ZlibDecoder::new())
                }
                _ => Box::new(compression_codecs::DeflateDecoder::new()),
            },
            #[allow(unreachable_patterns, reason = "without their features")]
            _ => unreachable!("only what there is has a name"),
        }
    }
}

/// What there is of a decoded body.
pub(crate) enum Step {
    /// Its next piece.
    Made(Bytes),
    /// Nothing without more input, or nothing at all.
    Hungry,
    /// Nothing yet, after so much work that others had better have their turn.
    Busy,
}

/// So many turns without a piece are work enough.
const TURNS: u32 = 16;

/// Takes the codings of one body off.
pub(crate) struct Decoder {
    /// The last coding first.
    stages: Vec<Stage>,
    limits: Decompression,
    came: u64,
    /// Nothing more comes.
    ended: bool,
    over: bool,
    trailers: Option<HeaderMap>,
}

struct Stage {
    coding: Coding,
    codec: Option<Box<dyn DecodeV2 + Send + Sync>>,
    input: Bytes,
    /// The last piece was full, so there may be more without further input.
    is_full: bool,
    /// A member is done, and nothing of the next one has come.
    is_between: bool,
    /// The number of zeros that were skipped.
    padding: usize,
    /// How many bytes it has made.
    made: u64,
    scratch: Vec<u8>,
}

impl Decoder {
    /// For a response with these headers; takes those away that are not true of the decoded body. `None` where there is nothing to
    /// take off, or something unknown: then the body is left as it is.
    pub(crate) fn of(headers: &mut HeaderMap, limits: Decompression) -> Result<Option<Self>, DecodeError> {
        if !limits.enabled || !headers.contains_key(CONTENT_ENCODING) {
            return Ok(None);
        }
        let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?"));
        let named = values.flat_map(|value| value.split(',')).map(str::trim);
        let named = named.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        let codings: Option<Vec<_>> = named.take(MAX_CODINGS + 1).map(Coding::named).collect();
        let Some(codings) = codings.filter(|codings| !codings.is_empty()) else { return Ok(None) };
        if codings.len() > MAX_CODINGS {
            return Err(DecodeError::TooManyCodings);
        }
        headers.remove(CONTENT_ENCODING);
        headers.remove(http::header::CONTENT_LENGTH);
        let stages = codings.into_iter().rev().map(Stage::new).collect();
        let (came, ended, over, trailers) = Default::default();
        Ok(Some(Self { stages, limits, came, ended, over, trailers }))
    }

    /// Takes the next piece of the body as it came.
    pub(crate) fn push(&mut self, data: Bytes) {
        self.came += data.len() as u64;
        self.stages[0].push(data);
    }

    /// The body is over.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// What comes after the body.
    pub(crate) fn keep(&mut self, trailers: Option<HeaderMap>) {
        self.trailers = trailers;
    }

    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Whether the whole body has been read.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The next piece.
    pub(crate) fn next(&mut self) -> Result<Step, DecodeError> {
        let mut turns = TURNS;
        let step = self.made_by(self.stages.len() - 1, &mut turns)?;
        self.over |= self.ended && matches!(step, Step::Hungry);
        Ok(step)
    }

    fn made_by(&mut self, stage: usize, turns: &mut u32) -> Result<Step, DecodeError> {
        loop {
            if let Some(made) = self.stages[stage].make()? {
                // What lies between two codings takes its time, too.
                self.check(stage)?;
                return Ok(Step::Made(made));
            }
            if *turns == 0 {
                return Ok(Step::Busy);
            }
            *turns -= 1;
            let more = match stage {
                0 => Step::Hungry,
                _ => self.made_by(stage - 1, turns)?,
            };
            match more {
                Step::Made(more) => self.stages[stage].push(more),
                Step::Hungry if self.ended => return self.stages[stage].last().map(|()| Step::Hungry),
                other => return Ok(other),
            }
        }
    }

    fn check(&self, stage: usize) -> Result<(), DecodeError> {
        let made = self.stages[stage].made;
        let is_last = stage == self.stages.len() - 1;
        let most = if is_last { self.limits.bytes } else { self.limits.bytes.max(HARMLESS) };
        match (most, self.limits.ratio) {
            (most, _) if made > most => Err(DecodeError::TooLong(most)),
            (_, ratio) if made > HARMLESS && made / ratio.max(1) >= self.came => Err(DecodeError::Bomb(ratio)),
            _ => Ok(()),
        }
    }
}

impl Stage {
    fn new(coding: Coding) -> Self {
        let (codec, input, is_full, padding, made, scratch) = Default::default();
        Self { coding, codec, input, is_full, is_between: true, padding, made, scratch }
    }

    fn push(&mut self, data: Bytes) {
        self.input = match self.input.is_empty() {
            true => data,
            false => [&self.input[..], &data].concat().into(),
        };
    }

    /// What can be made of what has come.
    fn make(&mut self) -> Result<Option<Bytes>, DecodeError> {
        while !self.input.is_empty() || self.is_full {
            self.skip_padding();
            if self.input.is_empty() && !self.is_full {
                return Ok(None);
            }
            if self.codec.is_none() && self.coding == Coding::Deflate && self.input.len() < 2 {
                return Ok(None);
            }
            let codec = self.codec.get_or_insert_with(|| self.coding.codec(&self.input));
            self.is_between = false;
            self.scratch.resize(PIECE, 0);
            let mut output = WriteBuffer::new_initialized(&mut self.scratch);
            let mut input = PartialBuffer::new(&self.input[..]);
            let decoded = codec.decode(&mut input, &mut output);
            let (read, written) = (input.written_len(), output.written_len());
            let done = match decoded {
                Ok(done) => done,
                // The piece before was full by chance, and there is no more: some say that by an error.
                Err(_) if self.input.is_empty() => {
                    self.is_full = false;
                    return Ok(None);
                }
                Err(error) => return Err(DecodeError::Invalid(self.coding, error.to_string())),
            };
            let stuck = read == 0 && written == 0 && !done;
            self.input = self.input.slice(read..);
            self.is_full = written == PIECE && !done;
            if done {
                self.finish_member()?;
            }
            if written > 0 {
                self.made += written as u64;
                return Ok(Some(self.piece(written)));
            }
            if stuck && !self.is_full {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Skips zeros behind a gzip member, as gzip(1) does: files are filled up with them.
    fn skip_padding(&mut self) {
        let is_behind_member = self.is_between && self.codec.is_some();
        if self.coding == Coding::Gzip && is_behind_member {
            let zeros = self.input.iter().take(MAX_PADDING - self.padding).take_while(|byte| **byte == 0).count();
            self.padding += zeros;
            self.input = self.input.slice(zeros..);
        }
    }

    /// A short piece does not keep the room of a long one.
    fn piece(&mut self, length: usize) -> Bytes {
        if length < PIECE / 2 {
            return Bytes::copy_from_slice(&self.scratch[..length]);
        }
        self.scratch.truncate(length);
        std::mem::take(&mut self.scratch).into()
    }

    fn finish_member(&mut self) -> Result<(), DecodeError> {
        self.is_between = true;
        if !self.coding.has_members() {
            return match self.input.is_empty() {
                true => Ok(()),
                false => Err(DecodeError::Invalid(self.coding, "there is something after its end".to_owned())),
            };
        }
        let renewed = self.codec.as_mut().map_or(Ok(()), |codec| codec.reinit());
        renewed.map_err(|error| DecodeError::Invalid(self.coding, error.to_string()))
    }

    /// Whether it may end here.
    fn last(&self) -> Result<(), DecodeError> {
        match self.is_between && self.input.is_empty() {
            true => Ok(()),
            false => Err(DecodeError::Cut(self.coding)),
        }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
