//! The places of files that are sent: each attempt opens its file anew, and notices if it is another one.

use std::fs::{File, Metadata};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::os::{lacks_descriptors, numbers_of};

/// The place of a file.
pub(in crate::client::body) enum FilePlace {
    /// A path, and the file that was there when the body was created.
    Path(PathBuf, FileId),
    /// An open file, from this position on.
    Open(Arc<File>, u64),
}

/// The identity of a file. It stays when the file is written to, and differs in a file that takes its place.
#[derive(PartialEq)]
pub(in crate::client::body) struct FileId {
    numbers: (u64, u64),
    /// The time at which the file was created, if the file system says so.
    created: Option<SystemTime>,
}

impl FileId {
    pub(in crate::client::body) fn of(metadata: &Metadata) -> Self {
        Self { numbers: numbers_of(metadata), created: metadata.created().ok() }
    }
}

impl FilePlace {
    /// Opens the file, and returns it with the position of the first byte.
    pub(in crate::client::body) fn open(&self, announced: Option<u64>) -> Result<(Arc<File>, u64), FileError> {
        let (path, id) = match self {
            Self::Open(file, start) => return Ok((file.clone(), *start)),
            Self::Path(path, id) => (path, id),
        };
        let failed = |error| FileError::Open(path.clone(), error);
        // Before it is opened: a named pipe would be waited for until a program writes to it.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(FileError::Replaced(path.clone()));
        }
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(failed)?;
        // Before anything is sent that would be cut off. A new file of the same length is sent whole: the numbers of files
        // may change where nothing was replaced, as in file systems of the user space.
        match announced {
            Some(announced) if metadata.len() != announced && FileId::of(&metadata) != *id => {
                Err(FileError::Replaced(path.clone()))
            }
            Some(announced) if metadata.len() < announced => Err(self.shrunk(metadata.len(), announced)),
            _ => Ok((Arc::new(file), 0)),
        }
    }

    pub(in crate::client::body) fn shrunk(&self, left: u64, announced: u64) -> FileError {
        FileError::Shrunk { file: self.name(), left, announced }
    }

    /// Returns the file's name for messages.
    pub(in crate::client::body) fn name(&self) -> String {
        match self {
            Self::Path(path, _) => path.display().to_string(),
            Self::Open(..) => "the file".to_owned(),
        }
    }
}

/// A file that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(in crate::client::body) enum FileError {
    #[error("{} cannot be opened", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("{} is a directory", .0.display())]
    Directory(PathBuf),
    #[error("{0} cannot be read")]
    Read(String, #[source] io::Error),
    #[error("{file} has shrunk: it has {left} of the announced {announced} bytes")]
    Shrunk { file: String, left: u64, announced: u64 },
    #[error("{} was replaced after the body was created", .0.display())]
    Replaced(PathBuf),
    #[error("{0} was not read, because the runtime has ended or there is none")]
    NoRuntime(String),
}

impl FileError {
    /// Returns true if there was no descriptor for the file.
    pub(in crate::client::body) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Open(_, error) if lacks_descriptors(error))
    }
}
