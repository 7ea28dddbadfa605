//! Connects to Unix domain sockets.

use std::io;
use std::time::Duration;

use super::Stream;
use crate::clock::{now, sleep_until};

/// The first wait before another attempt when the socket's backlog is full. Each further wait is twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_millis(50);

/// Connects to a Unix domain socket, and tries again while its backlog is full. Dropping the future gives up.
///
/// Over TCP the kernel repeats the SYN when a backlog is full. For a Unix domain socket Linux returns EAGAIN at once
/// (connect(2)), and does not signal when there is room again, so this function waits and repeats. Other systems return
/// ECONNREFUSED, as they do if no process listens; that is final.
pub(crate) async fn connect_unix(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    let mut backoff = FIRST_BACKOFF;
    loop {
        match connect_once(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            connected => return connected,
        }
        // The wait is random between half and all of the backoff, so that many dials do not repeat at the same moment.
        let wait = backoff / 2 + (backoff / 2).mul_f64(fastrand::f64());
        sleep_until(now().checked_add(wait)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

#[cfg(unix)]
async fn connect_once(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

/// This system has no such sockets, and a builder no setter for them.
#[cfg(not(unix))]
async fn connect_once(_: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_backlog_is_waited_for() {
        use futures_util::FutureExt;
        use tokio::net::{UnixSocket, UnixStream};

        let path = std::env::temp_dir().join(format!("speeddial-backlog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queued = Vec::new();
        let full = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut connecting = Box::pin(connect_unix(&path));
        let early = connecting.as_mut().now_or_never().map(|connected| connected.map(drop));
        assert!(early.is_none(), "{early:?}");
        let accepting = async {
            for _ in &queued {
                listener.accept().await.unwrap();
            }
        };
        let (connected, ()) = tokio::join!(connecting, accepting);
        connected.unwrap();
        std::fs::remove_file(&path).unwrap();
        drop(listener);
        assert!(connect_unix(&path).await.is_err(), "a socket that does not exist is not waited for");
    }
}
