//! What differs between operating systems: the numbers of errors, limits, files, terminals.

pub(crate) use system::{
    change_of, descriptor_limit, lacks_buffers, lacks_descriptors, lacks_family, lacks_ports, numbers_of, read_at,
    terminal_columns,
};

/// Returns the time for which the machine has been suspended since it was booted. `None` where no clock says.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn suspended() -> Option<std::time::Duration> {
    use nix::time::{ClockId, clock_gettime};
    // In this order: what passes between the two readings is not taken for a suspension.
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?;
    std::time::Duration::from(boot).checked_sub(monotonic.into())
}

/// Returns the time for which the machine has been suspended since it was booted. `None` where no clock says.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn suspended() -> Option<std::time::Duration> {
    None
}

#[cfg(unix)]
mod system {
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::unix::fs::MetadataExt;

    use rustix::io::Errno;

    fn is_one_of(error: &io::Error, wanted: &[Errno]) -> bool {
        error.raw_os_error().is_some_and(|code| wanted.iter().any(|errno| errno.raw_os_error() == code))
    }

    /// Returns true if the process or the system has no free descriptors.
    pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
        is_one_of(error, &[Errno::MFILE, Errno::NFILE])
    }

    /// Returns true if no local port is free. Connections ask for any free port, so EADDRINUSE means that none is.
    pub(crate) fn lacks_ports(error: &io::Error) -> bool {
        is_one_of(error, &[Errno::ADDRNOTAVAIL, Errno::ADDRINUSE])
    }

    /// Returns true if this machine has no addresses of the family, because it is turned off.
    pub(crate) fn lacks_family(error: &io::Error) -> bool {
        is_one_of(error, &[Errno::AFNOSUPPORT])
    }

    /// Returns true if the system has no memory for sockets.
    pub(crate) fn lacks_buffers(error: &io::Error) -> bool {
        is_one_of(error, &[Errno::NOBUFS])
    }

    /// Returns the number of descriptors that the process may open, or `None` without a limit.
    pub(crate) fn descriptor_limit() -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    }

    /// Returns the columns of the terminal that the process writes to or reads from, if it has one.
    pub(crate) fn terminal_columns() -> Option<usize> {
        use rustix::termios::tcgetwinsize;
        let size = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stderr()));
        let columns = size.or_else(|_| tcgetwinsize(io::stdin())).ok()?.ws_col;
        (columns > 0).then_some(usize::from(columns))
    }

    /// Returns the numbers of the file system and of the file in it. The number of a deleted file may be given to a new one.
    pub(crate) fn numbers_of(file: &Metadata) -> (u64, u64) {
        (file.dev(), file.ino())
    }

    /// Returns the time of the last change of the file's bytes or of its entry, in seconds and nanoseconds.
    pub(crate) fn change_of(file: &Metadata) -> (i64, i64) {
        (file.ctime(), file.ctime_nsec())
    }

    /// Reads up to `size` bytes at a position, without moving the file's own position. Returns none at the end.
    pub(crate) fn read_at(file: &File, size: usize, position: u64) -> io::Result<Vec<u8>> {
        let mut piece = Vec::with_capacity(size);
        // Not through the standard library, which would have to fill the piece with zeros first.
        rustix::io::retry_on_intr(|| rustix::io::pread(file, rustix::buffer::spare_capacity(&mut piece), position))?;
        piece.truncate(size);
        Ok(piece)
    }
}

/// The same functions for Windows, where few of these shortages have an error number of their own.
#[cfg(not(unix))]
mod system {
    use std::fs::{File, Metadata};
    use std::io;

    const WSAEAFNOSUPPORT: i32 = 10_047;

    pub(crate) fn lacks_descriptors(_: &io::Error) -> bool {
        false
    }

    pub(crate) fn lacks_ports(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::AddrNotAvailable
    }

    pub(crate) fn lacks_family(error: &io::Error) -> bool {
        error.raw_os_error() == Some(WSAEAFNOSUPPORT)
    }

    pub(crate) fn lacks_buffers(_: &io::Error) -> bool {
        false
    }

    pub(crate) fn descriptor_limit() -> Option<u64> {
        None
    }

    pub(crate) fn terminal_columns() -> Option<usize> {
        None
    }

    pub(crate) fn numbers_of(_: &Metadata) -> (u64, u64) {
        (0, 0)
    }

    pub(crate) fn change_of(_: &Metadata) -> (i64, i64) {
        (0, 0)
    }

    // The position that the file is left with is not used: each read gives its own.
    pub(crate) fn read_at(file: &File, size: usize, position: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; size];
        let read = std::os::windows::fs::FileExt::seek_read(file, &mut piece, position)?;
        piece.truncate(read);
        Ok(piece)
    }
}
