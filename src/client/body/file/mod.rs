//! Bodies that are files. They are read in large pieces on tokio's threads for blocking work, and anew for each attempt.

use std::fs::{File, Metadata};
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::AsyncReadExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::Body;
use super::streamed::{Frames, Replayable, Streamed};
use crate::clock::{Instant, Timer, now};
use crate::error::Cause;
use crate::os::{lacks_descriptors, numbers_of, read_at};

/// The bytes that are read at once. One piece is read ahead while the last one is sent. With fewer than 64 KiB, the hops
/// between threads cost more than the reads.
const PIECE: usize = 256 * 1024;

/// The time after which a file is opened again if there was no descriptor for it.
const OPEN_AGAIN_AFTER: Duration = Duration::from_millis(100);

impl Body {
    /// Creates a body that is the file at `path`, of the length that the file has now.
    ///
    /// The file is opened when the body is sent, and once more each time it is sent again: after a redirect with 307 or
    /// 308, in a resend, and in a retry. If it has grown meanwhile, only the bytes of the first length are sent. The
    /// request fails if the file is shorter by then, or gone, or if a file of another length has taken its place. If
    /// the process has no descriptor left for the file, the body waits for one, within the
    /// [`body_idle_timeout`](crate::ClientBuilder::body_idle_timeout).
    ///
    /// What cannot be read twice, such as a named pipe, is opened at once and becomes a stream of unknown length. A
    /// named pipe is waited for until a program writes to it. The wait occupies one of tokio's threads for blocking
    /// work, also after the future was dropped.
    ///
    /// # Errors
    /// The file cannot be opened, or is a directory. The error names the path.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let body = speeddial::Body::file("backup.tar").await?;
    /// client.put("http://store.example/backup.tar").body(body).send().await?.error_for_status()?;
    /// # Ok(()) }
    /// ```
    pub async fn file(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking(move || inspect_path(path)).await;
        match opened.map_err(io::Error::other)?? {
            PathKind::File(content) => Ok(from_file_content(content)),
            PathKind::Pipe(pipe) => Ok(Self::of_pipe(pipe.into())),
        }
    }

    /// Creates a body of what is left to be read from a file that can be read once.
    fn of_pipe(pipe: tokio::fs::File) -> Self {
        Self::wrap_stream(futures_util::stream::try_unfold(pipe, |mut pipe| async {
            let mut piece = BytesMut::with_capacity(PIECE);
            let read = pipe.read_buf(&mut piece).await?;
            Ok::<_, io::Error>((read > 0).then(|| (piece.freeze(), pipe)))
        }))
    }
}

/// Creates a body of the rest of an open file, from its current position on.
///
/// The length is known, and the body can be sent again, because the file is read by position: clones of the body do not
/// disturb each other. The position of other handles on the file stays what it is, except on Windows. Pipes and devices
/// become streams of unknown length. So does a file with a read or write still under way. Bytes that a cancelled read
/// has taken may not be part of the body, so `seek` before if a read was cancelled. The metadata of the file is read
/// here, without waiting.
impl From<tokio::fs::File> for Body {
    fn from(file: tokio::fs::File) -> Self {
        let file = match file.try_into_std() {
            Ok(file) => file,
            Err(busy) => return Self::of_pipe(busy),
        };
        match inspect_open(&file) {
            Ok(Some((start, length))) => {
                from_file_content(FileContent { place: FilePlace::Open(Arc::new(file), start), length })
            }
            Ok(None) | Err(_) => Self::of_pipe(file.into()),
        }
    }
}

/// Creates the body of a file; bytes if the file is empty.
fn from_file_content(content: FileContent) -> Body {
    let length = content.length;
    Body::streamed(Streamed::replayable(Arc::new(content), length))
}

/// The thing at a path.
enum PathKind {
    File(FileContent),
    /// A pipe or device, already open: it may not be possible to open it twice.
    Pipe(File),
}

/// Opens the thing at a path to find out what it is.
fn inspect_path(path: PathBuf) -> io::Result<PathKind> {
    let failed = |error: io::Error| io::Error::new(error.kind(), FileError::Open(path.clone(), error));
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => match inspect_unopened(&path, &error) {
            Some(content) => return Ok(PathKind::File(content)),
            None => return Err(failed(error)),
        },
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, FileError::Directory(path)));
    }
    if !metadata.is_file() {
        return Ok(PathKind::Pipe(file));
    }
    let length = length(&file, &metadata, 0);
    let id = FileId::of(&metadata);
    Ok(PathKind::File(FileContent { place: FilePlace::Path(path, id), length }))
}

/// Returns the file at a path if it could not be opened only because there was no descriptor for it. There may be one when
/// the body is sent.
fn inspect_unopened(path: &Path, error: &io::Error) -> Option<FileContent> {
    if !lacks_descriptors(error) {
        return None;
    }
    let metadata = std::fs::metadata(path).ok()?;
    // A file that says 0 would have to be read: see `length`.
    if !metadata.is_file() || metadata.len() == 0 {
        return None;
    }
    let place = FilePlace::Path(path.to_owned(), FileId::of(&metadata));
    Some(FileContent { place, length: Some(metadata.len()) })
}

/// Returns the position of an open file, and the length of the rest if it is known; `None` if it is not seekable.
fn inspect_open(mut file: &File) -> io::Result<Option<(u64, Option<u64>)>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let start = file.stream_position()?;
    Ok(Some((start, length(file, &metadata, start))))
}

/// The length that the files of sysfs say they have.
const PAGE: u64 = 4096;

/// Returns the length of a file from `start` on. It is not known of the files of `/proc`, which say 0, and of sysfs, which say a page.
fn length(file: &File, metadata: &Metadata, start: u64) -> Option<u64> {
    let length = metadata.len().saturating_sub(start);
    let is_doubtful = matches!(metadata.len(), 0 | PAGE);
    let differs = |piece: Vec<u8>| piece.len() as u64 != length;
    if is_doubtful && read_at(file, PAGE as usize, start).is_ok_and(differs) { None } else { Some(length) }
}

/// A file as the content of a body.
struct FileContent {
    place: FilePlace,
    /// The bytes to be read; `None` for all up to the end.
    length: Option<u64>,
}

impl Replayable for FileContent {
    fn frames(self: Arc<Self>) -> Pin<Box<dyn Frames>> {
        Box::pin(FileFrames {
            content: self,
            opened: None,
            read: 0,
            reading: None,
            open_again_at: None,
            timer: Timer::default(),
        })
    }
}

/// A file that is being read.
struct FileFrames {
    content: Arc<FileContent>,
    /// The file and the position of its first byte, once the first read has ended.
    opened: Option<(Arc<File>, u64)>,
    /// The bytes that were read.
    read: u64,
    /// The read that is under way. Dropped, it goes on to its end and then closes the file.
    reading: Option<JoinHandle<Result<ReadPiece, FileError>>>,
    /// The time at which the file is opened again, while there is no descriptor for it.
    open_again_at: Option<Instant>,
    timer: Timer,
}

/// A piece of a file, with the file and the position of its first byte.
struct ReadPiece {
    opened: (Arc<File>, u64),
    piece: Vec<u8>,
}

impl FileFrames {
    /// Returns the bytes that are still to be read.
    fn left(&self) -> u64 {
        self.content.length.map_or(u64::MAX, |length| length - self.read)
    }

    /// Starts to read the next piece, unless that was done before or all is read.
    fn read_on(&mut self) {
        if self.reading.is_some() || self.left() == 0 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let content = self.content.clone();
        let opened = self.opened.clone();
        let offset = self.read;
        let size = self.left().min(PIECE as u64) as usize;
        self.reading = Some(runtime.spawn_blocking(move || content.read(opened, offset, size)));
    }
}

impl FileFrames {
    /// Waits for the next piece; empty at the end of the file. Waits for a descriptor, if there is none for the file.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, FileError>> {
        loop {
            if let Some(at) = self.open_again_at {
                ready!(self.timer.poll_until(cx, at));
                self.open_again_at = None;
            }
            match ready!(self.poll_read(cx)) {
                Ok(ReadPiece { opened, piece }) => {
                    self.read += piece.len() as u64;
                    self.opened = Some(opened);
                    return Poll::Ready(Ok(piece));
                }
                Err(error) if error.is_out_of_descriptors() => self.open_again_at = Some(now() + OPEN_AGAIN_AFTER),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Waits for a read.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReadPiece, FileError>> {
        self.read_on();
        let read = match &mut self.reading {
            Some(reading) => ready!(Pin::new(reading).poll(cx)),
            None => return Poll::Ready(Err(FileError::NoRuntime(self.content.place.name()))),
        };
        self.reading = None;
        Poll::Ready(read.unwrap_or_else(|error| {
            let name = self.content.place.name();
            Err(if error.is_panic() {
                FileError::Read(name, io::Error::other(error))
            } else {
                FileError::NoRuntime(name)
            })
        }))
    }
}

impl FileContent {
    /// Reads up to `size` bytes, `offset` bytes behind the first one. Opens the file if that was not done before.
    fn read(&self, opened: Option<(Arc<File>, u64)>, offset: u64, size: usize) -> Result<ReadPiece, FileError> {
        let opened = match opened {
            Some(opened) => opened,
            None => self.place.open(self.length)?,
        };
        let (file, start) = &opened;
        let piece = read_at(file, size, start.saturating_add(offset));
        let piece = piece.map_err(|error| FileError::Read(self.place.name(), error))?;
        match self.length {
            Some(length) if piece.is_empty() => {
                let left = file.metadata().map_or(offset, |metadata| metadata.len().saturating_sub(*start));
                Err(self.place.shrunk(left.min(offset), length))
            }
            _ => Ok(ReadPiece { opened, piece }),
        }
    }
}

impl http_body::Body for FileFrames {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        let piece = ready!(self.poll_piece(cx))?;
        if piece.is_empty() {
            return Poll::Ready(None);
        }
        self.read_on();
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;

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
