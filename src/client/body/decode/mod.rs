//! Decompression of a body, piece by piece (RFC 9110 §8.4). A core.

use bytes::Bytes;
use compression_codecs::DecodeV2;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use coding::Coding;
use decompression::Decompression;

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

pub(super) mod coding;
pub(super) mod decompression;
#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
