//! From the bytes of an event stream to its events (WHATWG HTML §9.2.5 and §9.2.6). A core.
//!
//! Bytes come in pieces of any size. A line ends with CR, LF or CRLF; an empty line ends a block of lines, which is an
//! event if it has data. What follows the last empty line is not an event.
//!
//! Three limits keep the memory bounded: one for a line, one for the data of an event, and one for its ID and its type. The
//! last one also bounds the work, because an ID is repeated in every event until another one comes.

use std::borrow::Cow;
use std::time::Duration;

/// The limits of an event stream, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParserLimits {
    pub(super) line: usize,
    pub(super) event: usize,
}

/// The limit of a line. Events with much data mostly have it in one line.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// The limit of an event's data.
const MAX_EVENT: usize = 16 * 1024 * 1024;
/// The limit of an ID, and of a type. Servers accept a `Last-Event-ID` header of this length.
const MAX_ID: usize = 4 * 1024;

impl Default for ParserLimits {
    fn default() -> Self {
        Self { line: MAX_LINE, event: MAX_EVENT }
    }
}

/// A limit that an event stream exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseError {
    #[error("a line of the event stream is longer than {0} bytes")]
    Line(usize),
    #[error("the data of an event is longer than {0} bytes")]
    Event(usize),
    #[error("the {0} of an event is longer than {MAX_ID} bytes")]
    Field(&'static str),
}

/// The parser of one event stream.
#[derive(Debug, Default)]
pub(super) struct Parser {
    limits: ParserLimits,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// True until the first line is complete: a byte order mark may be in front of it.
    is_at_start: bool,
    /// True if the last byte was a CR, so that an LF belongs to the same end of line.
    is_after_cr: bool,
    block: Block,
    /// The last event ID of the stream.
    last_event_id: String,
    /// The last reconnection time that the stream set.
    retry: Option<Duration>,
}

/// The lines since the last empty one.
#[derive(Debug, Default)]
struct Block {
    event: String,
    /// Lines of data, each with an LF at its end.
    data: String,
    /// The ID of this block; `None` if it has none.
    id: Option<String>,
    retry: Option<Duration>,
}

/// The largest buffer, in bytes, that is kept for the next line.
const MAX_KEPT: usize = 64 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

impl Parser {
    /// Creates a parser. `last_event_id` is the ID of events until the stream sets another one.
    pub(super) fn new(last_event_id: String) -> Self {
        Self { last_event_id, is_at_start: true, ..Self::default() }
    }

    /// Returns the limits, to change them.
    pub(super) fn limits_mut(&mut self) -> &mut ParserLimits {
        &mut self.limits
    }

    /// Returns the ID with which the stream can be resumed: the last one whose block is complete.
    pub(super) fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// Returns the last reconnection time that the stream set. A block does not have to be complete for it.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Reads from the front of `input` up to the end of the next event, and removes what it has read. Returns `None` if
    /// all of it was read without an event.
    ///
    /// # Errors
    /// The stream exceeds a limit. The parser must not be used any more.
    pub(super) fn next_event(&mut self, input: &mut &[u8]) -> Result<Option<Event>, ParseError> {
        while let Some(first) = input.first() {
            if std::mem::take(&mut self.is_after_cr) && *first == b'\n' {
                *input = &input[1..];
                continue;
            }
            let Some(end) = input.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.check_line(input.len())?;
                self.line.extend_from_slice(input);
                *input = &[];
                break;
            };
            self.check_line(end)?;
            let piece = &input[..end];
            self.is_after_cr = input[end] == b'\r';
            *input = &input[end + 1..];
            if let Some(event) = self.complete_line(piece)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn check_line(&self, more: usize) -> Result<(), ParseError> {
        if self.line.len() + more > self.limits.line {
            return Err(ParseError::Line(self.limits.line));
        }
        Ok(())
    }

    /// Handles the line that ends with `piece`.
    fn complete_line(&mut self, piece: &[u8]) -> Result<Option<Event>, ParseError> {
        if self.line.is_empty() {
            return self.handle_line(piece);
        }
        // The buffer is put back for the next line, unless it is large.
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(piece);
        let result = self.handle_line(&line);
        if line.capacity() <= MAX_KEPT {
            line.clear();
            self.line = line;
        }
        result
    }

    fn handle_line(&mut self, mut line: &[u8]) -> Result<Option<Event>, ParseError> {
        if std::mem::take(&mut self.is_at_start) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.end_block());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let name = &line[..colon.unwrap_or(line.len())];
        let value = colon.map_or(&[][..], |colon| &line[colon + 1..]);
        // A comment is a line without a name.
        self.handle_field(name, value.strip_prefix(b" ").unwrap_or(value))?;
        Ok(None)
    }

    fn handle_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), ParseError> {
        match name {
            b"event" => self.block.event = short_text("type", value)?,
            b"data" => self.add_data(&text(value))?,
            // Other control characters than NUL, which the standard names, can be sent in no `Last-Event-ID` either.
            b"id" if !value.iter().any(is_control) => self.block.id = Some(short_text("ID", value)?),
            b"retry" => {
                if let Some(retry) = milliseconds(value) {
                    self.retry = Some(retry);
                    self.block.retry = Some(retry);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_data(&mut self, text: &str) -> Result<(), ParseError> {
        let data = &mut self.block.data;
        if data.len() + text.len() > self.limits.event {
            return Err(ParseError::Event(self.limits.event));
        }
        data.push_str(text);
        data.push('\n');
        Ok(())
    }

    /// Ends a block. Returns its event if it has data.
    fn end_block(&mut self) -> Option<Event> {
        let Block { event, mut data, id, retry } = std::mem::take(&mut self.block);
        if let Some(id) = id {
            self.last_event_id = id;
        }
        // One line feed belongs to the end of the last line.
        data.pop()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(Event { event, data, id: self.last_event_id.clone(), retry })
    }
}

fn is_control(byte: &u8) -> bool {
    byte.is_ascii_control() && *byte != b'\t'
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns the text of an ID or a type.
fn short_text(name: &'static str, bytes: &[u8]) -> Result<String, ParseError> {
    if bytes.len() > MAX_ID {
        return Err(ParseError::Field(name));
    }
    Ok(text(bytes).into_owned())
}

/// Parses a number of milliseconds, which consists of nothing but digits. A number with more than 19 of them is taken as
/// the longest time.
fn milliseconds(value: &[u8]) -> Option<Duration> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = str::from_utf8(value).ok()?;
    Some(digits.parse().map_or(Duration::MAX, Duration::from_millis))
}

/// A server-sent event ([WHATWG HTML §9.2](https://html.spec.whatwg.org/multipage/server-sent-events.html)).
///
/// ```
/// # fn handle(event: speeddial::sse::Event) {
/// match event.event.as_str() {
///     "message" => println!("{}", event.data),
///     other => println!("an event of type {other}: {}", event.data),
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Event {
    /// The type of the event: `message` unless the server gave another one.
    pub event: String,
    /// The data, its lines joined by LF. Invalid UTF-8 is replaced by U+FFFD.
    pub data: String,
    /// The last event ID: that of this event, or of the last one before it that had an ID; empty if there was none.
    pub id: String,
    /// The reconnection time that the server sent with this event; `None` if it sent none.
    pub retry: Option<Duration>,
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
