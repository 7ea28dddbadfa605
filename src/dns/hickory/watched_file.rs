//! A value made from a file, and made anew when the file changes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use crate::clock::{Instant, now};
use crate::sync::lock;

/// The time between two looks at a file.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A value made from a file, and made anew when the file has changed.
pub(super) struct WatchedFile<T> {
    path: PathBuf,
    last: Mutex<Option<LastCheck<T>>>,
}

/// The last look at the file.
struct LastCheck<T> {
    at: Instant,
    /// The file's time of modification and length when the value was made; `None` if there was no file.
    stamp: Option<(SystemTime, u64)>,
    value: Arc<T>,
}

impl<T> WatchedFile<T> {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last: Mutex::default() }
    }

    #[cfg(feature = "doctor")]
    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Returns the value that `make` makes of the file, at most [`CHECK_INTERVAL`] old. If a changed file cannot be read or
    /// `make` fails, the previous value stays.
    ///
    /// # Errors
    /// The error of `make`, if there is no previous value.
    pub(super) fn get<E>(&self, make: impl FnOnce(io::Result<Vec<u8>>) -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut last = lock(&self.last);
        let now = now();
        if let Some(check) = &*last
            && now < check.at + CHECK_INTERVAL
        {
            return Ok(check.value.clone());
        }
        let stamp = fs::metadata(&self.path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        let (stamp, value) = match &*last {
            Some(check) if check.stamp == stamp => (stamp, check.value.clone()),
            previous => match (make(fs::read(&self.path)), previous) {
                (Ok(value), _) => (stamp, Arc::new(value)),
                // With the old stamp, so that the next check tries again.
                (Err(_), Some(check)) => (check.stamp, check.value.clone()),
                (Err(error), None) => return Err(error),
            },
        };
        *last = Some(LastCheck { at: now, stamp, value: value.clone() });
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_read_again_within_five_seconds() {
        let path = std::env::temp_dir().join(format!("speeddial-hosts-{}", std::process::id()));
        let watched = WatchedFile::new(&path);
        let read = || watched.get(|bytes| bytes.map(|bytes| bytes.len())).map(|length| *length);
        assert!(read().is_err(), "there is no file yet");
        fs::write(&path, "1").unwrap();
        assert_eq!(read().unwrap(), 1);
        fs::write(&path, "22").unwrap();
        tokio::time::advance(CHECK_INTERVAL - Duration::from_millis(1)).await;
        assert_eq!(read().unwrap(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(read().unwrap(), 2);
        fs::remove_file(&path).unwrap();
        tokio::time::advance(CHECK_INTERVAL).await;
        assert_eq!(read().unwrap(), 2, "the previous value stays");
        fs::write(&path, "333").unwrap();
        tokio::time::advance(CHECK_INTERVAL).await;
        let unreadable = watched.get(|_| Err::<usize, _>(io::Error::other("as scripted")));
        assert_eq!(*unreadable.unwrap(), 2);
        tokio::time::advance(CHECK_INTERVAL).await;
        assert_eq!(read().unwrap(), 3, "and is read as soon as it can be");
        fs::remove_file(&path).unwrap();
    }
}
