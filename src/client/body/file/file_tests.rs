//! Tests of `mod.rs` with files in the system's folder for temporary ones.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use http_body_util::BodyExt;
use tokio::io::AsyncSeekExt;

use super::*;

/// A file that is removed with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(content: impl AsRef<[u8]>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("speeddial-{}-{number}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    async fn body(&self) -> Body {
        Body::file(&self.0).await.unwrap()
    }

    async fn opened(&self) -> tokio::fs::File {
        tokio::fs::File::open(&self.0).await.unwrap()
    }

    fn append(&self, text: &str) {
        std::fs::OpenOptions::new().append(true).open(&self.0).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn truncate(&self, length: u64) {
        std::fs::OpenOptions::new().write(true).open(&self.0).unwrap().set_len(length).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn read(body: Body) -> Result<Bytes, String> {
    match BodyExt::collect(body).await {
        Ok(all) => Ok(all.to_bytes()),
        Err(error) => Err(std::error::Error::source(&error).unwrap().to_string()),
    }
}

#[tokio::test]
async fn a_file_is_read_whole_however_often() {
    let content: Vec<u8> = (0..3 * PIECE + 1).map(|at| at as u8).collect();
    let file = Scratch::new(&content);
    for body in [file.body().await, file.opened().await.into()] {
        assert_eq!((body.content_length(), body.as_bytes()), (Some(content.len() as u64), None));
        let clone = body.try_clone().expect("a file can be read again");
        assert_eq!(read(clone.try_clone().unwrap()).await.unwrap(), content);
        let (one, other) = tokio::join!(read(body), read(clone));
        assert!(one.unwrap() == content && other.unwrap() == content, "two readers do not disturb each other");
    }
}

#[tokio::test]
async fn an_open_file_is_read_from_its_position_on_and_not_moved() {
    let file = Scratch::new("0123456789");
    let mut opened = file.opened().await;
    opened.seek(io::SeekFrom::Start(4)).await.unwrap();
    let mut other = opened.try_clone().await.unwrap();
    let body = Body::from(opened);
    assert_eq!(body.content_length(), Some(6));
    assert_eq!(read(body.try_clone().unwrap()).await.unwrap(), "456789");
    assert_eq!(other.stream_position().await.unwrap(), 4, "the position is that of all handles");
    other.seek(io::SeekFrom::Start(7)).await.unwrap();
    assert_eq!(read(body).await.unwrap(), "456789");
    other.seek(io::SeekFrom::Start(99)).await.unwrap();
    assert_eq!(read(Body::from(other)).await.unwrap(), "");
}

#[tokio::test]
async fn an_empty_file_is_an_empty_body() {
    let file = Scratch::new("");
    for body in [file.body().await, file.opened().await.into()] {
        assert_eq!((body.content_length(), body.is_empty()), (Some(0), true));
    }
}

#[tokio::test]
async fn the_length_of_a_sparse_file_is_known_without_reading_it() {
    let file = Scratch::new("");
    file.truncate(5 << 30);
    for body in [file.body().await, file.opened().await.into()] {
        assert_eq!(body.content_length(), Some(5 << 30));
    }
}

#[tokio::test]
async fn a_file_that_has_grown_is_sent_with_its_first_length() {
    let file = Scratch::new("01234");
    let bodies = [file.body().await, file.opened().await.into()];
    file.append("56789");
    for body in bodies {
        assert_eq!(read(body).await.unwrap(), "01234");
    }
}

#[tokio::test]
async fn a_file_that_has_shrunk_is_an_error() {
    let file = Scratch::new(vec![0; 3 * PIECE]);
    let announced = 3 * PIECE;
    let by_path = file.body().await;
    let mut begun = file.body().await;
    let open = Body::from(file.opened().await);
    begun.frame().await.unwrap().unwrap();
    file.truncate(7);
    let path = file.0.display();
    let shrunk = |name: &str, left| format!("{name} has shrunk: it has {left} of the announced {announced} bytes");
    assert_eq!(read(by_path).await, Err(shrunk(&path.to_string(), 7)));
    assert_eq!(read(open).await, Err(shrunk("the file", 7)));
    assert_eq!(read(begun).await, Err(shrunk(&path.to_string(), 7)));
}

#[tokio::test]
async fn a_file_that_is_gone_or_a_folder_is_an_error() {
    let file = Scratch::new("01234");
    let body = file.body().await;
    let open = Body::from(file.opened().await);
    let path = file.0.clone();
    drop(file);
    assert_eq!(read(body).await, Err(format!("{} cannot be opened", path.display())));
    assert_eq!(read(open).await.unwrap(), "01234", "an open file stays");

    let error = Body::file(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), format!("{} cannot be opened", path.display()));
    let folder = std::env::temp_dir();
    let error = Body::file(&folder).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (io::ErrorKind::IsADirectory, format!("{} is a directory", folder.display()))
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_of_another_length_in_its_place_is_an_error() {
    let file = Scratch::new("0123456789");
    let bodies = [file.body().await, file.body().await, file.body().await];
    let open = Body::from(file.opened().await);
    let replaced = format!("{} was replaced after the body was created", file.0.display());
    let contents = ["longer than the first", "short", "abcdefghij"];
    let expected = [Err(replaced.clone()), Err(replaced), Ok("abcdefghij".into())];
    for ((body, content), expected) in bodies.into_iter().zip(contents).zip(expected) {
        let other = Scratch::new(content);
        std::fs::rename(&other.0, &file.0).unwrap();
        assert_eq!(read(body).await, expected);
    }
    assert_eq!(read(open).await.unwrap(), "0123456789", "an open file stays");
}

#[cfg(unix)]
#[tokio::test]
async fn a_named_pipe_is_read_once_and_not_opened_in_place_of_a_file() {
    let file = Scratch::new("0123456789");
    let body = file.body().await;
    std::fs::remove_file(&file.0).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file.0).status().unwrap().success());
    // Without a program that writes to the pipe. To open it would never end.
    let replaced = format!("{} was replaced after the body was created", file.0.display());
    assert_eq!(read(body).await, Err(replaced));

    let path = file.0.clone();
    let writer = std::thread::spawn(move || std::fs::write(path, "through a pipe"));
    let body = file.body().await;
    assert!(body.content_length().is_none() && body.try_clone().is_none());
    assert_eq!(read(body).await.unwrap(), "through a pipe");
    writer.join().unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_that_do_not_say_their_length_are_read_to_their_end() {
    for body in
        [Body::file("/proc/version").await.unwrap(), tokio::fs::File::open("/proc/version").await.unwrap().into()]
    {
        assert_eq!(body.content_length(), None);
        assert!(read(body.try_clone().unwrap()).await.unwrap().starts_with(b"Linux version"));
        assert!(read(body).await.unwrap().starts_with(b"Linux version"));
    }
    // sysfs says that it has a page.
    for path in ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum"] {
        let Ok(text) = std::fs::read(path) else { continue };
        for body in [Body::file(path).await.unwrap(), tokio::fs::File::open(path).await.unwrap().into()] {
            assert_eq!(read(body).await.unwrap().len(), text.len(), "{path}");
        }
    }
    let page = Scratch::new("x".repeat(4096));
    assert_eq!(Body::file(&page.0).await.unwrap().content_length(), Some(4096));
    let body = Body::file("/dev/null").await.unwrap();
    assert!(body.try_clone().is_none(), "a device is read once");
    assert_eq!(read(body).await.unwrap(), "");
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_is_a_stream() {
    let (mut writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
    let reader = tokio::fs::File::from_std(File::from(std::os::fd::OwnedFd::from(reader)));
    let body = Body::from(reader);
    assert_eq!(body.content_length(), None);
    assert!(body.try_clone().is_none());
    writer.write_all(b"through a pipe").unwrap();
    drop(writer);
    assert_eq!(read(body).await.unwrap(), "through a pipe");
}

#[test]
fn without_a_runtime_reading_is_an_error() {
    let file = Scratch::new("01234");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = runtime.block_on(file.body());
    let error = futures_util::FutureExt::now_or_never(read(body)).expect("nothing is waited for").unwrap_err();
    assert_eq!(error, format!("{} was not read, because the runtime has ended or there is none", file.0.display()));
}
