//! Files of certificates and keys that are read again while a client runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::clock::Instant;
use crate::tls::certs::{certificates, check_roots};
use crate::tls::failure::TlsConfigError;
use crate::world;

/// The most bytes of a file.
const MAX_FILE: u64 = 16 << 20;
/// The most files of a directory of roots.
const MAX_FILES: usize = 4_096;
/// The ends of the names of files with certificates.
const EXTENSIONS: [&str; 3] = ["pem", "crt", "cer"];

/// Files and the value that was read from them last.
pub(in crate::tls) struct WatchedFiles<T> {
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T, TlsConfigError>,
    values: Mutex<Values<T>>,
}

/// The values that were read from files.
struct Values<T> {
    current: Arc<T>,
    /// Another value, and the time at which it was read first. The files may be in the middle of being written.
    unsure: Option<(T, Instant)>,
}

/// The time after which a value that was read is read once more, before it is used.
const SETTLING: Duration = Duration::from_millis(100);

impl<T: PartialEq> WatchedFiles<T> {
    /// Reads the files for the first time.
    pub(in crate::tls) fn open(
        paths: Vec<PathBuf>,
        read: fn(&[PathBuf]) -> Result<T, TlsConfigError>,
    ) -> Result<Self, TlsConfigError> {
        let first = read(&paths)?;
        Ok(Self { paths, read, values: Mutex::new(Values { current: Arc::new(first), unsure: None }) })
    }

    /// Returns the value that was read last.
    pub(in crate::tls) fn current(&self) -> Arc<T> {
        self.values.lock().current.clone()
    }

    /// Returns true if the files are to be read again in a moment.
    pub(in crate::tls) fn are_unsure(&self) -> bool {
        self.values.lock().unsure.is_some()
    }

    /// Reads the files again. Another value is used once it was read twice, [`SETTLING`] or more apart: a file that is cut at the end of
    /// a certificate is valid. If that fails, the value stays as it is.
    pub(in crate::tls) fn refresh(&self, now: Instant) -> Result<(), TlsConfigError> {
        let read = (self.read)(&self.paths);
        let mut values = self.values.lock();
        let before = values.unsure.take();
        let read = read?;
        if *values.current == read {
            return Ok(());
        }
        match before.filter(|(value, _)| *value == read) {
            Some((value, since)) if now - since >= SETTLING => values.current = Arc::new(value),
            Some(same) => values.unsure = Some(same),
            None => values.unsure = Some((read, now)),
        }
        Ok(())
    }
}

/// Reads a file of certificates or of a key.
pub(in crate::tls) fn read_file(path: &Path) -> Result<Vec<u8>, TlsConfigError> {
    let content = world::read_file(path, MAX_FILE + 1).map_err(|error| unreadable(path, error))?;
    if content.len() as u64 > MAX_FILE {
        return Err(unreadable(path, io::Error::other("it has more than 16 MiB")));
    }
    Ok(content)
}

/// Returns the error of a file whose content is not valid.
pub(in crate::tls) fn invalid(path: &Path) -> impl Fn(TlsConfigError) -> TlsConfigError {
    move |error| TlsConfigError::InFile { path: path.to_owned(), error: Box::new(error) }
}

/// Reads the certificate authorities of each path: of a file, or of a directory's files whose names end in `.pem`, `.crt` or
/// `.cer`.
pub(in crate::tls) fn read_roots(paths: &[PathBuf]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in files_of(path)? {
                all.extend(roots_of(&file)?);
            }
        } else {
            all.extend(roots_of(path)?);
        }
    }
    all.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    all.dedup();
    Ok(all)
}

fn roots_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let roots = certificates(&read_file(path)?).map_err(invalid(path))?;
    check_roots(&roots).map_err(invalid(path))?;
    Ok(roots)
}

/// Returns the files with certificates in a directory. At least one, or the directory is refused: it may just be replaced.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, TlsConfigError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| unreadable(directory, error))? {
        let path = entry.map_err(|error| unreadable(directory, error))?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(unreadable(directory, io::Error::other("it has more than 4,096 files of certificates")));
        }
    }
    if files.is_empty() {
        let what = "it has no file whose name ends in .pem, .crt or .cer";
        return Err(unreadable(directory, io::Error::new(io::ErrorKind::NotFound, what)));
    }
    Ok(files)
}

fn unreadable(path: &Path, error: io::Error) -> TlsConfigError {
    TlsConfigError::Unreadable { path: path.to_owned(), error: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    static CONTENT: AtomicU8 = AtomicU8::new(0);

    fn read(_: &[PathBuf]) -> Result<u8, TlsConfigError> {
        match CONTENT.load(Ordering::SeqCst) {
            u8::MAX => Err(TlsConfigError::NoRoots),
            content => Ok(content),
        }
    }

    #[test]
    fn another_value_is_used_when_it_was_read_twice() {
        let (files, start) = (WatchedFiles::open(Vec::new(), read).unwrap(), crate::clock::now());
        // The time in ms, the content of the files, the value in use after they were read, and true if it is unsure.
        let rows = [
            (0, 0, 0, false),
            (10, 1, 0, true),
            (110, 2, 0, true),
            (150, 2, 0, true),
            (210, 2, 2, false),
            (220, 3, 2, true),
            (320, u8::MAX, 2, false),
            (420, 3, 2, true),
            (520, 2, 2, false),
            (620, 3, 2, true),
            (9_000, 3, 3, false),
        ];
        for (at, content, value, is_unsure) in rows {
            CONTENT.store(content, Ordering::SeqCst);
            let result = files.refresh(start + Duration::from_millis(at));
            assert_eq!(result.is_err(), content == u8::MAX, "{at}");
            assert_eq!((*files.current(), files.are_unsure()), (value, is_unsure), "{at}");
        }
    }
}
