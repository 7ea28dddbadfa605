//! The machine's configuration of names.
//!
//! | file | what it does |
//! |---|---|
//! | `config.rs` | the servers, the search list and the hosts file; timeouts and numbers, of the user, of resolv.conf, or by default |
//! | `resolv_conf.rs` | what resolv.conf says |
//! | `mod.rs` | reads a file again when it has changed |

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::{Instant, now};
use crate::sync::lock;
use crate::world::{self, Stamp};

pub(super) mod config;
#[cfg_attr(not(unix), allow(dead_code, reason = "resolv.conf is Unix's"))]
pub(super) mod resolv_conf;

/// The time between two looks at a file.
pub(in crate::dns::hickory) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A value made from a file, and made anew when the file has changed.
pub(in crate::dns::hickory) struct WatchedFile<T> {
    path: PathBuf,
    last: Mutex<Option<LastCheck<T>>>,
}

/// The last look at the file.
struct LastCheck<T> {
    at: Instant,
    /// The file's stamp when the value was made; `None` if there was no file.
    stamp: Option<Stamp>,
    value: Arc<T>,
    /// The number of values so far.
    version: u64,
}

impl<T> WatchedFile<T> {
    pub(in crate::dns::hickory) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last: Mutex::default() }
    }

    #[cfg(feature = "doctor")]
    pub(in crate::dns::hickory) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Returns the value that `make` makes of the file, at most [`CHECK_INTERVAL`] old. If a changed file cannot be read or
    /// `make` fails, the previous value stays.
    ///
    /// # Errors
    /// The error of `make`, if there is no previous value.
    pub(in crate::dns::hickory) fn get<E>(
        &self,
        make: impl FnOnce(io::Result<Vec<u8>>) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut last = lock(&self.last);
        let now = now();
        if let Some(check) = &*last
            && now < check.at + CHECK_INTERVAL
        {
            return Ok(check.value.clone());
        }
        self.look(now, &mut last, make)
    }

    /// Returns the number of values so far, after a look at the file.
    pub(in crate::dns::hickory) fn version<E>(&self, make: impl FnOnce(io::Result<Vec<u8>>) -> Result<T, E>) -> u64 {
        let mut last = lock(&self.last);
        // A failure leaves what was known.
        let _ = self.look(now(), &mut last, make);
        last.as_ref().map_or(0, |check| check.version)
    }

    fn look<E>(
        &self,
        now: Instant,
        last: &mut Option<LastCheck<T>>,
        make: impl FnOnce(io::Result<Vec<u8>>) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let stamp = Stamp::of(&self.path);
        let (stamp, value, version) = match &*last {
            Some(check) if check.stamp == stamp => (stamp, check.value.clone(), check.version),
            previous => match (make(world::read_file(&self.path, u64::MAX)), previous) {
                (Ok(value), previous) => {
                    (stamp, Arc::new(value), previous.as_ref().map_or(1, |check| check.version + 1))
                }
                // With the old stamp, so that the next check tries again.
                (Err(_), Some(check)) => (check.stamp, check.value.clone(), check.version),
                (Err(error), None) => return Err(error),
            },
        };
        *last = Some(LastCheck { at: now, stamp, value: value.clone(), version });
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::SystemTime;

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

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_file_of_the_same_date_and_length_in_its_place_is_noticed() {
        use std::os::unix::fs::MetadataExt;

        let folder = std::env::temp_dir().join(format!("speeddial-swapped-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, other) = (folder.join("hosts"), folder.join("other"));
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let write = |path: &Path, text: &str| {
            fs::write(path, text).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(date).unwrap();
        };
        write(&path, "1");
        let watched = WatchedFile::new(&path);
        let read = || watched.get(|bytes| bytes.map(|bytes| bytes[0])).map(|byte| *byte).unwrap();
        assert_eq!(read(), b'1');
        write(&other, "2");
        fs::rename(&other, &path).unwrap();
        tokio::time::advance(CHECK_INTERVAL).await;
        assert_eq!(read(), b'2', "another file");
        let changed = |path: &Path| fs::metadata(path).map(|file| (file.ctime(), file.ctime_nsec())).unwrap();
        let before = changed(&path);
        // The clock of a file system may tick slowly.
        while changed(&path) == before {
            write(&path, "3");
        }
        tokio::time::advance(CHECK_INTERVAL).await;
        assert_eq!(read(), b'3', "the same file, and its date was set back");
        fs::remove_dir_all(&folder).unwrap();
    }
}
