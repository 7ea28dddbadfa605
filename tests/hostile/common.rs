//! The parts that the tables of hostile HTTP/1.1 and HTTP/2 servers share.

/// The behaviour of a server after it has sent its response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum After {
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Sends nothing more and goes on reading.
    Hold,
    /// Answers the next requests correctly.
    Serve,
    /// Sends the end of the response again and again, this many times per second.
    Repeat(u32),
}

/// The outcome that the client must have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// A response with this body.
    Body(&'static str),
    /// An error of one of these kinds whose chain contains these words.
    Error(&'static [&'static str], &'static str),
}

/// The kind of an error before the end of the head.
pub(super) const EXCHANGE: &[&str] = &["exchange"];
/// The kind of an error in the body.
pub(super) const BODY: &[&str] = &["body"];
/// The kind of a timeout.
pub(super) const TIMEOUT: &[&str] = &["timeout"];
/// The kinds of an error before or after the end of the head. Which of the two it is depends on timing.
pub(super) const EITHER: &[&str] = &["exchange", "body"];

/// Compares an outcome with the expected one and returns the difference in one line.
pub(super) fn check_outcome(outcome: Result<String, speeddial::Error>, expected: Expected) -> Result<(), String> {
    match (outcome, expected) {
        (Ok(body), Expected::Body(expected)) if body == expected => Ok(()),
        (Err(error), Expected::Error(kinds, words))
            if kinds.contains(&error.kind().as_str()) && format!("{error:#}").contains(words) =>
        {
            Ok(())
        }
        (outcome, expected) => Err(format!("{outcome:?} instead of {expected:?}")),
    }
}

/// Makes a request and returns the response's body, of at most 64 KiB.
pub(super) async fn read(request: speeddial::RequestBuilder) -> Result<String, speeddial::Error> {
    let bytes = request.send().await?.bytes_with_limit(1 << 16).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
