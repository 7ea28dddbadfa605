//! Counts the interim responses (1xx) before the response to an HTTP/1.1 request (RFC 9110 §15.2). A core.

/// The most interim responses to one request. Long jobs and resumable uploads send one each few seconds.
pub(in crate::connect) const MAX_INTERIM: u32 = 1_000;

/// Counts the interim responses in the bytes of a server.
#[derive(Debug, Clone, Copy)]
pub(in crate::connect) struct InterimCounter {
    count: u32,
    position: Position,
}

/// The position in what a server sends.
#[derive(Debug, Clone, Copy)]
enum Position {
    /// In a status line, of which this many bytes have come. After [`DIGIT`] they are those of an interim response.
    StatusLine(u8),
    /// In the rest of an interim response.
    Head { line_is_empty: bool },
    /// In the response itself.
    Response,
}

/// The index of the status code's first digit in a status line: `HTTP/1.1 200`.
const DIGIT: u8 = 9;
const SECOND_DIGIT: u8 = DIGIT + 1;
const THIRD_DIGIT: u8 = DIGIT + 2;

impl Default for InterimCounter {
    fn default() -> Self {
        Self { count: 0, position: Position::StatusLine(0) }
    }
}

impl InterimCounter {
    /// Returns the number of interim responses that have come.
    pub(in crate::connect) fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if no byte has come after the last interim response.
    pub(in crate::connect) fn is_between(&self) -> bool {
        matches!(self.position, Position::StatusLine(0))
    }

    /// Reads the next bytes from the server. Returns false if more than [`MAX_INTERIM`] interim responses have come.
    pub(in crate::connect) fn read(&mut self, bytes: &[u8]) -> bool {
        // A shortcut for the usual case: a response without interim responses.
        if matches!(self.position, Position::StatusLine(0))
            && bytes.starts_with(b"HTTP/1.")
            && bytes.get(usize::from(DIGIT)).is_some_and(|digit| *digit != b'1')
        {
            self.position = Position::Response;
        }
        for byte in bytes {
            self.position = match (self.position, byte) {
                (Position::Response, _) => break,
                // Empty lines before a response are skipped (RFC 9112 §2.2).
                (Position::StatusLine(0), b'\r' | b'\n') => Position::StatusLine(0),
                (Position::StatusLine(DIGIT), b'1') => Position::StatusLine(SECOND_DIGIT),
                (Position::StatusLine(DIGIT), _) => Position::Response,
                (Position::StatusLine(SECOND_DIGIT), b'0') => Position::StatusLine(THIRD_DIGIT),
                // A 101 (Switching Protocols) is the response itself. What follows it is not HTTP.
                (Position::StatusLine(THIRD_DIGIT), b'1') => Position::Response,
                (Position::StatusLine(SECOND_DIGIT | THIRD_DIGIT), b'\n') => Position::Head { line_is_empty: true },
                (Position::StatusLine(SECOND_DIGIT | THIRD_DIGIT), _) => Position::Head { line_is_empty: false },
                (Position::StatusLine(bytes), _) => Position::StatusLine(bytes + 1),
                (Position::Head { line_is_empty: true }, b'\n') => {
                    self.count += 1;
                    Position::StatusLine(0)
                }
                (Position::Head { .. }, b'\n') => Position::Head { line_is_empty: true },
                (Position::Head { line_is_empty }, b'\r') => Position::Head { line_is_empty },
                (Position::Head { .. }, _) => Position::Head { line_is_empty: false },
            };
        }
        self.count <= MAX_INTERIM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of interim responses, and true if they are within the limit, for bytes in pieces of this
    /// size.
    fn counted(bytes: &str, size: usize) -> (u32, bool) {
        let mut counter = InterimCounter::default();
        let is_within_limit = bytes.as_bytes().chunks(size).all(|piece| counter.read(piece));
        (counter.count, is_within_limit)
    }

    #[test]
    fn interim_responses_are_counted_in_pieces_of_any_size() {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\n\r\n";
        let go_on = "HTTP/1.1 100\r\n\r\n";
        let bare = "HTTP/1.1 102 Processing\nx: 1\n\n";
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\nHTTP/1.1 100 OK\r\n\r\n";
        for size in [1, 2, 3, 7, 1_000] {
            assert_eq!(counted(response, size), (0, true));
            assert_eq!(counted(&[go_on, hints, bare, response].concat(), size), (3, true), "{size}");
            assert_eq!(counted(&["\r\n", hints, "\r\n", response].concat(), size), (1, true), "{size}");
            assert_eq!(counted(&[&hints.repeat(1_000), response].concat(), size), (1_000, true), "{size}");
            assert!(!counted(&[&go_on.repeat(1_001), response].concat(), size).1, "{size}");
        }
    }

    #[test]
    fn bytes_behind_a_switch_of_protocols_are_not_counted() {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n";
        let looks_like_heads = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        for size in [1, 2, 10, 11, 12, 1_000] {
            assert_eq!(counted(&[switch, &looks_like_heads].concat(), size), (0, true), "{size}");
            let hints = "HTTP/1.1 103 Early Hints\r\n\r\n";
            assert_eq!(counted(&[hints, hints, switch, &looks_like_heads].concat(), size), (2, true), "{size}");
        }
    }
}
