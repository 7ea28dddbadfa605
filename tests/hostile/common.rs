//! The parts that the tables of hostile HTTP/1.1 and HTTP/2 servers share.

/// What a server does when it has said its piece.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Then {
    /// It closes.
    Close,
    /// It resets the connection.
    Reset,
    /// It says no more, and reads on.
    Hold,
    /// It answers what comes next.
    Serve,
    /// It says the same again, for ever, so often a second.
    Again(u32),
}

/// What a client makes of it: a body, or an error of one of these kinds with these words in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made {
    Body(&'static str),
    Error(&'static [&'static str], &'static str),
}

pub(super) const EXCHANGE: &[&str] = &["exchange"];
pub(super) const BODY: &[&str] = &["body"];
pub(super) const TIMEOUT: &[&str] = &["timeout"];
/// Which of them it is, is a matter of who is faster.
pub(super) const EITHER: &[&str] = &["exchange", "body"];

/// What became of a request, in one line, and whether that is what it had to.
pub(super) fn judge(made: Result<String, speeddial::Error>, expected: Made) -> Result<(), String> {
    match (made, expected) {
        (Ok(body), Made::Body(expected)) if body == expected => Ok(()),
        (Err(error), Made::Error(kinds, words))
            if kinds.contains(&error.kind().as_str()) && error.to_string().contains(words) =>
        {
            Ok(())
        }
        (made, expected) => Err(format!("{made:?}, where {expected:?} was to be")),
    }
}

pub(super) async fn read(request: speeddial::RequestBuilder) -> Result<String, speeddial::Error> {
    let bytes = request.send().await?.bytes_with_limit(1 << 16).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
