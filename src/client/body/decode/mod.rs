//! Decompression of a body, piece by piece (RFC 9110 §8.4). A core.

use std::fmt;

use bytes::Bytes;
use compression_codecs::DecodeV2;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue};

/// The length up to which a body may have any compression ratio.
const ALWAYS_ALLOWED: u64 = 8 << 20;
/// The bytes that are decompressed at once.
const PIECE: usize = 32 << 10;
/// The most codings of a body. Each of them multiplies the work that a short body can cause.
const MAX_CODINGS: usize = 2;
/// The most zeros behind the members of a gzip body that are taken for padding.
const MAX_PADDING: usize = 1 << 20;
/// The most members of a body, beside one for each [`BYTES_OF_A_MEMBER`] received. To begin one costs as much as to decode some
/// thousand bytes.
const MAX_MEMBERS: u64 = 1_024;
/// The length of a member in the body as it was received from which on there may be any number of them.
const BYTES_OF_A_MEMBER: u64 = 128;
/// The most members that end before other tasks run.
const MEMBERS_AT_ONCE: usize = 16;
/// The most bytes that one input becomes before other tasks run. They are copied, and written to memory that is new.
const BYTES_AT_ONCE: usize = 1 << 20;
/// The most steps without a piece before other tasks run.
const MAX_IDLE_STEPS: u32 = 16;

/// A body that cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("it has more than {MAX_CODINGS} content codings")]
    TooManyCodings,
    #[error("it is not valid {0}: {1}")]
    Invalid(Coding, String),
    #[error("its {0} data ends too soon")]
    Cut(Coding),
    #[error("it consists of too many members")]
    TooManyMembers,
    #[error("it becomes longer than {0} bytes")]
    TooLong(u64),
    #[error("it becomes more than {0} times as long")]
    Bomb(u64),
}

impl DecodeError {
    /// Returns true if the server's next response would most likely fail as well. A body that was cut, or grew beyond a limit, may
    /// be another one the next time.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::TooManyCodings | Self::Invalid(..))
    }
}

/// The result of one step of decompression.
pub(crate) enum DecoderStep {
    /// The next piece of the body.
    Decoded(Bytes),
    /// The decoder needs more input. After the end of the input, the body has ended.
    NeedsInput,
    /// There is no piece yet, or there were many of one input. Other tasks should run before the next step.
    Yield,
}

/// Decompresses one body.
pub(crate) struct Decoder {
    /// A stage for each coding, the last one applied first.
    stages: Vec<DecoderStage>,
    limits: Decompression,
    /// The compressed bytes so far.
    received: u64,
    /// True if no more input follows.
    is_ended: bool,
    is_over: bool,
    /// The bytes that the present input became since other tasks could run.
    at_once: usize,
    trailers: Option<HeaderMap>,
}

impl Decoder {
    /// Creates a decoder for a response, and removes the headers that describe the compressed form. Returns `None` and
    /// leaves the headers if the body has no coding, or an unknown one.
    pub(crate) fn of(headers: &mut HeaderMap, limits: Decompression) -> Result<Option<Self>, DecodeError> {
        if !headers.contains_key(CONTENT_ENCODING) {
            return Ok(None);
        }
        let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?"));
        let named = values.flat_map(|value| value.split(',')).map(str::trim);
        let named = named.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        let accepted = |name: &str| Coding::named(name).filter(|coding| limits.accepts(*coding));
        let codings: Option<Vec<_>> = named.take(MAX_CODINGS + 1).map(accepted).collect();
        let Some(codings) = codings.filter(|codings| !codings.is_empty()) else { return Ok(None) };
        if codings.len() > MAX_CODINGS {
            return Err(DecodeError::TooManyCodings);
        }
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
        let stages = codings.into_iter().rev().map(DecoderStage::new).collect();
        Ok(Some(Self { stages, limits, received: 0, is_ended: false, is_over: false, at_once: 0, trailers: None }))
    }

    /// Adds a piece of the compressed body.
    pub(crate) fn push(&mut self, data: Bytes) {
        self.received += data.len() as u64;
        self.stages[0].push(data);
    }

    /// Marks the end of the compressed body.
    pub(crate) fn end(&mut self) {
        self.is_ended = true;
    }

    /// Keeps the trailers for when the body is over.
    pub(crate) fn set_trailers(&mut self, trailers: Option<HeaderMap>) {
        self.trailers = trailers;
    }

    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Returns true if the whole body has been decoded.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Decodes the next piece.
    pub(crate) fn next(&mut self) -> Result<DecoderStep, DecodeError> {
        if self.at_once >= BYTES_AT_ONCE {
            self.at_once = 0;
            return Ok(DecoderStep::Yield);
        }
        let mut idle_steps = MAX_IDLE_STEPS;
        let step = self.step(self.stages.len() - 1, &mut idle_steps)?;
        self.at_once = match &step {
            DecoderStep::Decoded(data) => self.at_once + data.len(),
            DecoderStep::NeedsInput | DecoderStep::Yield => 0,
        };
        self.is_over |= self.is_ended && matches!(step, DecoderStep::NeedsInput);
        Ok(step)
    }

    /// Decodes the next piece of one stage, whose input is the output of the stage before it.
    fn step(&mut self, stage: usize, idle_steps: &mut u32) -> Result<DecoderStep, DecodeError> {
        loop {
            let decoded = self.stages[stage].decode()?;
            self.check_limits(stage)?;
            match decoded {
                Some(decoded) => return Ok(DecoderStep::Decoded(decoded)),
                None if self.stages[stage].is_busy => return Ok(DecoderStep::Yield),
                None => {}
            }
            if *idle_steps == 0 {
                return Ok(DecoderStep::Yield);
            }
            *idle_steps -= 1;
            let input = match stage {
                0 => DecoderStep::NeedsInput,
                _ => self.step(stage - 1, idle_steps)?,
            };
            match input {
                DecoderStep::Decoded(input) => self.stages[stage].push(input),
                DecoderStep::NeedsInput if self.is_ended => {
                    self.stages[stage].check_end()?;
                    return Ok(DecoderStep::NeedsInput);
                }
                other => return Ok(other),
            }
        }
    }

    /// Checks the limits for the output of a stage. That of an inner coding costs time as well, even if the body stays
    /// short.
    fn check_limits(&self, stage: usize) -> Result<(), DecodeError> {
        let Decompression { max_bytes, max_ratio, .. } = self.limits;
        let DecoderStage { decoded, members, .. } = self.stages[stage];
        if members > MAX_MEMBERS + self.received / BYTES_OF_A_MEMBER {
            return Err(DecodeError::TooManyMembers);
        }
        let is_last = stage == self.stages.len() - 1;
        let max_bytes = if is_last { max_bytes } else { max_bytes.max(ALWAYS_ALLOWED) };
        if decoded > max_bytes {
            return Err(DecodeError::TooLong(max_bytes));
        }
        if decoded > ALWAYS_ALLOWED && decoded / max_ratio.max(1) >= self.received {
            return Err(DecodeError::Bomb(max_ratio));
        }
        Ok(())
    }
}

/// The decoding of one coding.
struct DecoderStage {
    coding: Coding,
    /// The codec, from the first input on.
    codec: Option<Box<dyn DecodeV2 + Send + Sync>>,
    input: Bytes,
    /// True if the last piece filled its buffer, so that there may be more without further input.
    was_full: bool,
    /// True if a member is complete, and nothing of the next one has arrived.
    is_between_members: bool,
    /// The members that are complete.
    members: u64,
    /// True if there is more to decode without further input, once other tasks have run.
    is_busy: bool,
    /// The zeros that were skipped so far.
    padding: usize,
    /// The bytes decoded so far.
    decoded: u64,
    buffer: Vec<u8>,
}

impl DecoderStage {
    fn new(coding: Coding) -> Self {
        Self {
            coding,
            codec: None,
            input: Bytes::new(),
            was_full: false,
            is_between_members: true,
            members: 0,
            is_busy: false,
            padding: 0,
            decoded: 0,
            buffer: Vec::new(),
        }
    }

    fn push(&mut self, data: Bytes) {
        self.input = if self.input.is_empty() { data } else { [&self.input[..], &data].concat().into() };
    }

    /// Decodes the next piece of the input; `None` if there is not enough of it, or other tasks should run first.
    fn decode(&mut self) -> Result<Option<Bytes>, DecodeError> {
        self.is_busy = false;
        let mut members = 0;
        while !self.input.is_empty() || self.was_full {
            self.skip_padding();
            if self.input.is_empty() && !self.was_full {
                return Ok(None);
            }
            if self.codec.is_none() && self.coding == Coding::Deflate && self.input.len() < 2 {
                return Ok(None);
            }
            if self.codec.is_none()
                && let Some(why) = self.coding.refusal(&self.input)
            {
                return Err(DecodeError::Invalid(self.coding, why.to_owned()));
            }
            let codec = self.codec.get_or_insert_with(|| self.coding.codec(&self.input));
            self.is_between_members = false;
            self.buffer.resize(PIECE, 0);
            let mut output = WriteBuffer::new_initialized(&mut self.buffer);
            let mut input = PartialBuffer::new(&self.input[..]);
            let decoded = codec.decode(&mut input, &mut output);
            let read = input.written_len();
            let written = output.written_len();
            let done = match decoded {
                Ok(done) => done,
                // The last piece filled its buffer by chance. Some codecs fail if there is nothing more to decode.
                Err(_) if self.input.is_empty() => {
                    self.was_full = false;
                    return Ok(None);
                }
                Err(error) => return Err(DecodeError::Invalid(self.coding, error.to_string())),
            };
            let is_stuck = read == 0 && written == 0 && !done;
            self.input = self.input.slice(read..);
            self.was_full = written == PIECE && !done;
            if done {
                self.finish_member()?;
                members += 1;
            }
            if written > 0 {
                self.decoded += written as u64;
                return Ok(Some(self.take_piece(written)));
            }
            if is_stuck && !self.was_full {
                return Ok(None);
            }
            if members == MEMBERS_AT_ONCE {
                self.is_busy = true;
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Skips zeros behind a gzip member, as gzip(1) does. Some archives are padded with them.
    fn skip_padding(&mut self) {
        let is_behind_member = self.is_between_members && self.codec.is_some();
        if self.coding == Coding::Gzip && is_behind_member {
            let zeros = self.input.iter().take(MAX_PADDING - self.padding).take_while(|byte| **byte == 0).count();
            self.padding += zeros;
            self.input = self.input.slice(zeros..);
        }
    }

    /// Takes a piece out of the buffer. A short one is copied, so that it does not keep a long buffer alive.
    fn take_piece(&mut self, length: usize) -> Bytes {
        if length < PIECE / 2 {
            return Bytes::copy_from_slice(&self.buffer[..length]);
        }
        self.buffer.truncate(length);
        std::mem::take(&mut self.buffer).into()
    }

    /// Handles the end of a member or frame. A coding without members must end here.
    fn finish_member(&mut self) -> Result<(), DecodeError> {
        self.is_between_members = true;
        self.members += 1;
        if !self.coding.has_members() {
            if self.input.is_empty() {
                return Ok(());
            }
            return Err(DecodeError::Invalid(self.coding, "more data follows its end".to_owned()));
        }
        let renewed = self.codec.as_mut().map_or(Ok(()), |codec| codec.reinit());
        renewed.map_err(|error| DecodeError::Invalid(self.coding, error.to_string()))
    }

    /// Fails unless the data may end here.
    fn check_end(&self) -> Result<(), DecodeError> {
        if self.is_between_members && self.input.is_empty() {
            return Ok(());
        }
        Err(DecodeError::Cut(self.coding))
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;

/// A content coding.
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
    /// Returns the coding with this name; `None` if it is unknown or its feature is off.
    pub(in crate::client::body) fn named(name: &str) -> Option<Self> {
        let names = [
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
            ("deflate", Self::Deflate),
        ];
        let (_, coding) = names.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known))?;
        let enabled = match coding {
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Brotli => cfg!(feature = "brotli"),
            Self::Zstd => cfg!(feature = "zstd"),
            Self::Deflate => cfg!(feature = "deflate"),
        };
        if enabled { Some(coding) } else { None }
    }

    /// Returns true if several members (gzip) or frames (zstd) in a row are one body.
    pub(in crate::client::body) fn has_members(self) -> bool {
        matches!(self, Self::Gzip | Self::Zstd)
    }

    /// Returns why data that begins with `start` is not decoded. A large window of brotli, which no standard has, takes as much memory as
    /// the server likes.
    pub(in crate::client::body) fn refusal(self, start: &[u8]) -> Option<&'static str> {
        let has_large_window = matches!(start, [first, ..] if first & 0x7f == 0x11);
        if self == Self::Brotli && has_large_window { Some("its window is a large one") } else { None }
    }

    /// Creates a decoder for data that begins with `start`. Servers send deflate with and without its zlib envelope
    /// (RFC 9110 §8.4.1.2), which the first two bytes tell.
    #[cfg_attr(not(feature = "deflate"), expect(unused_variables, reason = "the other codings have one form"))]
    pub(in crate::client::body) fn codec(self, start: &[u8]) -> Box<dyn DecodeV2 + Send + Sync> {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Box::new(compression_codecs::GzipDecoder::new()),
            #[cfg(feature = "brotli")]
            Self::Brotli => Box::new(compression_codecs::BrotliDecoder::new()),
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                // 8 MiB, the window that every decoder has to support (RFC 8878 §3.1.1.1.2). More memory than that is
                // not the server's to take.
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
            #[allow(unreachable_patterns, reason = "reachable if a feature is off")]
            _ => unreachable!("a coding whose feature is off is never named"),
        }
    }
}

/// The limits for decompressing response bodies.
///
/// Requests without an `Accept-Encoding` or `Range`, of their own or from the client's default headers, accept the
/// codings that the crate's features provide: `gzip`, `brotli`, `zstd`, `deflate`. Their responses are decompressed. With none of these
/// features on, nothing is.
/// With either of the two headers, a response is left as the server sent it.
///
/// A decompression bomb is an error: by default that is a body of more than 1 GiB, or one of more than 8 MiB that grew
/// more than 250 times.
///
/// ```
/// # #[cfg(feature = "gzip")] {
/// use speeddial::Client;
/// use speeddial::settings::Decompression;
///
/// let client = Client::builder().decompress(Decompression::default().max_bytes(1 << 20)).build();
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decompression {
    /// The codings that are decompressed: the bits of [`bit`].
    codings: u8,
    pub(in crate::client::body) max_bytes: u64,
    pub(in crate::client::body) max_ratio: u64,
}

impl Default for Decompression {
    fn default() -> Self {
        Self { codings: ALL, max_bytes: 1 << 30, max_ratio: 250 }
    }
}

/// `true` is [`Decompression::default`], `false` is [`Decompression::none`].
impl From<bool> for Decompression {
    fn from(is_enabled: bool) -> Self {
        if is_enabled { Self::default() } else { Self::none() }
    }
}

impl Decompression {
    /// Leaves bodies as they arrive, and sends no `Accept-Encoding`.
    pub fn none() -> Self {
        Self { codings: 0, ..Self::default() }
    }

    /// Sets the maximum length of a decompressed body in bytes. 1 GiB by default; `u64::MAX` for no limit.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// Sets the maximum ratio of a decompressed body to its compressed form, which applies beyond 8 MiB. 250 by
    /// default; `u64::MAX` for no limit.
    #[must_use]
    pub fn max_ratio(self, ratio: u64) -> Self {
        Self { max_ratio: ratio, ..self }
    }

    /// Decompresses a coding, or leaves its bodies as they arrive.
    pub(crate) fn with(self, coding: Coding, enable: bool) -> Self {
        let codings = if enable { self.codings | (bit(coding) & ALL) } else { self.codings & !bit(coding) };
        Self { codings, ..self }
    }

    /// Returns true if nothing is decompressed.
    pub(crate) fn is_none(&self) -> bool {
        ALL == 0 || self.codings == 0
    }

    /// Returns true if bodies in this coding are decompressed.
    pub(in crate::client::body) fn accepts(&self, coding: Coding) -> bool {
        self.codings & bit(coding) != 0
    }

    /// Returns the `Accept-Encoding` of a request; `None` if nothing is decompressed.
    pub(crate) fn accepted(&self) -> Option<HeaderValue> {
        if self.is_none() { None } else { Some(HeaderValue::from_static(ACCEPTED[usize::from(self.codings)])) }
    }
}

/// Returns the bit of a coding.
const fn bit(coding: Coding) -> u8 {
    1 << coding as u8
}

/// The codings of the crate's features.
const ALL: u8 = (cfg!(feature = "gzip") as u8 * bit(Coding::Gzip))
    | (cfg!(feature = "brotli") as u8 * bit(Coding::Brotli))
    | (cfg!(feature = "zstd") as u8 * bit(Coding::Zstd))
    | (cfg!(feature = "deflate") as u8 * bit(Coding::Deflate));

/// The `Accept-Encoding` of each set of codings, the best coding first.
const ACCEPTED: [&str; 16] = [
    "",
    "gzip",
    "br",
    "br, gzip",
    "zstd",
    "zstd, gzip",
    "zstd, br",
    "zstd, br, gzip",
    "deflate",
    "gzip, deflate",
    "br, deflate",
    "br, gzip, deflate",
    "zstd, deflate",
    "zstd, gzip, deflate",
    "zstd, br, deflate",
    "zstd, br, gzip, deflate",
];

#[cfg(test)]
mod decompression_tests {
    use super::*;

    #[test]
    fn codings_that_are_excluded_are_not_accepted() {
        let all = Decompression::default();
        let codings = [Coding::Gzip, Coding::Brotli, Coding::Zstd, Coding::Deflate];
        let none = codings.iter().fold(all, |less, coding| less.with(*coding, false));
        assert_eq!((none, none.accepted()), (Decompression::none(), None));
        for set in 0..16_u8 {
            let named = ACCEPTED[usize::from(set)].split(", ").filter_map(Coding::named);
            assert_eq!(named.fold(0, |bits, coding| bits | bit(coding)), set & ALL);
        }
        for coding in codings {
            let without = all.with(coding, false).accepted().map(|value| value.to_str().unwrap().to_owned());
            let named = without.iter().flat_map(|names| names.split(", ")).filter_map(Coding::named);
            assert!(named.clone().all(|named| named != coding), "{coding}: {without:?}");
            let only = Decompression::none().with(coding, true).accepted();
            assert!(only.is_none_or(|only| Coding::named(only.to_str().unwrap()) == Some(coding)), "{coding}");
            assert_eq!(all.with(coding, false).with(coding, true).accepted(), all.accepted());
        }
    }
}
