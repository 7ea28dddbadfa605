//! The interim responses that come before the response to an HTTP/1.1 request (RFC 9110 §15.2). A core.

/// The most interim responses to a request. Go takes five.
pub(super) const MAX_INTERIM: u32 = 20;

/// Counts them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interim {
    count: u32,
    at: At,
}

/// The place in what a server sends.
#[derive(Debug, Clone, Copy)]
enum At {
    /// In a status line, of which so many bytes have come.
    StatusLine(u8),
    /// In the rest of an interim response.
    Head { line_is_empty: bool },
    /// In the response itself.
    Response,
}

/// The place of a status' first digit in its line, as in `HTTP/1.1 200`.
const DIGIT: u8 = 9;

impl Default for Interim {
    fn default() -> Self {
        Self { count: 0, at: At::StatusLine(0) }
    }
}

impl Interim {
    /// The number of interim responses that have come.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if nothing has come behind the last of them.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.at, At::StatusLine(0))
    }

    /// Takes the next bytes from the server. Returns false if there are too many interim responses in what has come.
    pub(super) fn read(&mut self, bytes: &[u8]) -> bool {
        // Most responses come without any.
        if matches!(self.at, At::StatusLine(0))
            && bytes.starts_with(b"HTTP/1.")
            && bytes.get(usize::from(DIGIT)).is_some_and(|digit| *digit != b'1')
        {
            self.at = At::Response;
        }
        for byte in bytes {
            self.at = match (self.at, byte) {
                (At::Response, _) => break,
                // Empty lines before a response are skipped (RFC 9112 §2.2).
                (At::StatusLine(0), b'\r' | b'\n') => At::StatusLine(0),
                (At::StatusLine(DIGIT), b'1') => At::Head { line_is_empty: false },
                (At::StatusLine(DIGIT), _) => At::Response,
                (At::StatusLine(come), _) => At::StatusLine(come + 1),
                (At::Head { line_is_empty: true }, b'\n') => {
                    self.count += 1;
                    At::StatusLine(0)
                }
                (At::Head { .. }, b'\n') => At::Head { line_is_empty: true },
                (At::Head { line_is_empty }, b'\r') => At::Head { line_is_empty },
                (At::Head { .. }, _) => At::Head { line_is_empty: false },
            };
        }
        self.count <= MAX_INTERIM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many there were, and true if they were not too many, where the bytes come in pieces of this size.
    fn counted(bytes: &str, size: usize) -> (u32, bool) {
        let mut interim = Interim::default();
        let may_go_on = bytes.as_bytes().chunks(size).all(|piece| interim.read(piece));
        (interim.count, may_go_on)
    }

    #[test]
    fn interim_responses_are_counted_however_they_are_cut() {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\n\r\n";
        let go_on = "HTTP/1.1 100\r\n\r\n";
        let bare = "HTTP/1.1 102 Processing\nx: 1\n\n";
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\nHTTP/1.1 100 OK\r\n\r\n";
        for size in [1, 2, 3, 7, 1_000] {
            assert_eq!(counted(response, size), (0, true));
            assert_eq!(counted(&[go_on, hints, bare, response].concat(), size), (3, true), "{size}");
            assert_eq!(counted(&["\r\n", hints, "\r\n", response].concat(), size), (1, true), "{size}");
            assert_eq!(counted(&[&hints.repeat(20), response].concat(), size), (20, true), "{size}");
            assert!(!counted(&[&go_on.repeat(21), response].concat(), size).1, "{size}");
        }
    }
}
